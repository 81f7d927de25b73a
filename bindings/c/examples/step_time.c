/* How long does a step of llama-3.1-70b on four H100s take, and why? */
#include <stdio.h>
#include <stdlib.h>

#include "ridgepoint.h"

static void check(RidgepointStatus status, char **error) {
  if (status != RIDGEPOINT_STATUS_OK) {
    fprintf(stderr, "%s\n", *error);
    ridgepoint_string_free(*error);
    exit(EXIT_FAILURE);
  }
}

int main(void) {
  char *error = NULL;
  RidgepointOptions options = {
      .struct_size = sizeof options,
      .deployment_json = "{\"tensor_parallel_size\": 4, \"max_num_seqs\": 128}",
  };
  RidgepointModel *model = NULL;
  check(ridgepoint_model_create("llama-3.1-70b", "h100", &options, &model, &error), &error);

  /* Two decodes, and a chunk of 512 tokens of a prompt that continues after it. */
  const uint32_t num_computed_tokens[] = {2048, 700, 1024};
  const uint32_t num_scheduled_tokens[] = {1, 1, 512};
  const uint8_t samples[] = {1, 1, 0};
  double step_time_us = 0;
  check(ridgepoint_step_time_us(model, num_computed_tokens, num_scheduled_tokens, samples, 3, &step_time_us, &error),
        &error);
  printf("step time: %.0f us\n", step_time_us);

  char *breakdown = NULL;
  check(ridgepoint_step_json(model, num_computed_tokens, num_scheduled_tokens, samples, 3, &breakdown, &error), &error);
  printf("%s\n", breakdown);

  ridgepoint_string_free(breakdown);
  ridgepoint_model_free(model);
  return EXIT_SUCCESS;
}
