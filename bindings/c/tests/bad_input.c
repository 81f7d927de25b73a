/* What is wrong ends in a status and a text, never in a crash. Prints what failed; 0 where nothing did. */
#include <stdio.h>
#include <string.h>

#include "ridgepoint.h"

static int failures = 0;

static void expect(const char *what, RidgepointStatus found, RidgepointStatus expected, char *error, const char *words) {
  int said = words == NULL ? error == NULL : error != NULL && strstr(error, words) != NULL;
  if (found != expected || !said) {
    printf("%s: status %d, expected %d; text '%s', expected '%s'\n", what, (int)found, (int)expected,
           error == NULL ? "(none)" : error, words == NULL ? "(none)" : words);
    failures++;
  }
  ridgepoint_string_free(error);
}

static void create(const char *name, const char *hardware, const RidgepointOptions *options, RidgepointStatus expected,
                   const char *words) {
  RidgepointModel *model = (RidgepointModel *)&failures; /* Must not be left as it was. */
  char *error = NULL;
  RidgepointStatus status = ridgepoint_model_create(name, hardware, options, &model, &error);
  expect(words, status, expected, error, words);
  if (model != NULL) {
    printf("%s: a model came out of a failure\n", words);
    failures++;
  }
}

static void create_all(void) {
  RidgepointOptions options = {.struct_size = sizeof options};
  create(NULL, "h100", NULL, RIDGEPOINT_STATUS_NULL_POINTER, "model is NULL");
  create("llama-3.1-8b", NULL, NULL, RIDGEPOINT_STATUS_NULL_POINTER, "hardware is NULL");
  create("llama-3.1-8", "h100", NULL, RIDGEPOINT_STATUS_UNKNOWN_NAME, "llama-3.1-8");
  create("llama-3.1-8b", "h999", NULL, RIDGEPOINT_STATUS_UNKNOWN_NAME, "h999");
  create("llama-3.1-8b\xff", "h100", NULL, RIDGEPOINT_STATUS_INVALID_UTF8, "UTF-8");
  create("./nowhere.json", "h100", NULL, RIDGEPOINT_STATUS_IO, "nowhere.json");
  options.deployment_json = "{\"gpu_memory_utilization\": NaN}";
  create("llama-3.1-8b", "h100", &options, RIDGEPOINT_STATUS_INVALID_INPUT, "deployment_json");
  options.deployment_json = "{\"tensor_paralel_size\": 2}";
  create("llama-3.1-8b", "h100", &options, RIDGEPOINT_STATUS_INVALID_INPUT, "tensor_paralel_size");
  options.deployment_json = "{\"tensor_parallel_size\": 5}";
  create("llama-3.1-8b", "h100", &options, RIDGEPOINT_STATUS_INVALID_INPUT, "tensor_parallel_size = 5");
  options.deployment_json = NULL;
  options.model_config_json = "{\"model_type\": \"llama\"";
  create("mine", "h100", &options, RIDGEPOINT_STATUS_INVALID_INPUT, "model_config_json");
  options.model_config_json = NULL;
  options.struct_size = 0;
  create("llama-3.1-8b", "h100", &options, RIDGEPOINT_STATUS_INVALID_ARGUMENT, "struct_size");
  RidgepointStatus status = ridgepoint_model_create("no-such", "h100", NULL, NULL, NULL);
  expect("no place for anything", status, RIDGEPOINT_STATUS_NULL_POINTER, NULL, NULL);
}

static void steps(const RidgepointModel *model) {
  const uint32_t ones[4] = {1, 1, 1, 1};
  double us[2] = {-1, -1};
  char *error = NULL, *json = NULL;
  RidgepointStatus status = ridgepoint_step_time_us(NULL, ones, ones, NULL, 4, us, &error);
  expect("no model", status, RIDGEPOINT_STATUS_NULL_POINTER, error, "model is NULL");
  status = ridgepoint_step_time_us(model, NULL, ones, NULL, 4, us, &error);
  expect("no column", status, RIDGEPOINT_STATUS_NULL_POINTER, error, "num_computed_tokens is NULL");
  status = ridgepoint_step_time_us(model, ones, ones, NULL, SIZE_MAX, us, &error);
  expect("a length that can't be", status, RIDGEPOINT_STATUS_INVALID_ARGUMENT, error, "num_requests");
  status = ridgepoint_step_time_us(model, ones, ones, NULL, 4, NULL, &error);
  expect("no result", status, RIDGEPOINT_STATUS_NULL_POINTER, error, "out_step_time_us is NULL");
  status = ridgepoint_step_json(model, ones, ones, NULL, 0, &json, &error);
  expect("an empty step", status, RIDGEPOINT_STATUS_INVALID_ARGUMENT, error, "no requests");

  status = ridgepoint_kv_transfer_time_us(model, 4, 4096, us, &error);
  expect("no direction", status, RIDGEPOINT_STATUS_INVALID_ARGUMENT, error, "direction = 4");
  status = ridgepoint_kv_transfer_time_us(model, RIDGEPOINT_TRANSFER_DIRECTION_CPU_TO_GPU, 4096, NULL, &error);
  expect("no result", status, RIDGEPOINT_STATUS_NULL_POINTER, error, "out_us is NULL");

  const size_t backwards[3] = {0, 3, 2}, beyond[3] = {0, 2, 5};
  status = ridgepoint_step_times_us(model, backwards, 2, ones, ones, NULL, 2, us, &error);
  expect("offsets that fall", status, RIDGEPOINT_STATUS_INVALID_ARGUMENT, error, "offsets[2] = 2");
  status = ridgepoint_step_times_us(model, beyond, 2, ones, ones, NULL, 4, us, &error);
  expect("offsets beyond the columns", status, RIDGEPOINT_STATUS_INVALID_ARGUMENT, error, "num_requests = 4");
  if (us[0] != -1 || us[1] != -1 || json != NULL) {
    printf("a failure wrote a result\n");
    failures++;
  }

  const uint32_t most[2] = {UINT32_MAX, UINT32_MAX};
  status = ridgepoint_step_time_us(model, most, most, NULL, 2, us, &error);
  expect("the largest requests", status, RIDGEPOINT_STATUS_OK, error, NULL);
  if (!(us[0] > 0 && us[0] <= 1e300)) {
    printf("the largest requests take %g us\n", us[0]);
    failures++;
  }
}

int main(void) {
  create_all();
  char *error = NULL;
  RidgepointModel *model = NULL;
  RidgepointStatus status = ridgepoint_model_create("llama-3.1-8b", "h100", NULL, &model, &error);
  expect("a model", status, RIDGEPOINT_STATUS_OK, error, NULL);
  steps(model);

  expect("free", ridgepoint_model_free(model), RIDGEPOINT_STATUS_OK, NULL, NULL);
  expect("free twice", ridgepoint_model_free(model), RIDGEPOINT_STATUS_INVALID_HANDLE, NULL, NULL);
  expect("free nothing", ridgepoint_model_free(NULL), RIDGEPOINT_STATUS_OK, NULL, NULL);
  const uint32_t one = 1;
  double us = -1;
  status = ridgepoint_step_time_us(model, &one, &one, NULL, 1, &us, &error);
  expect("use after free", status, RIDGEPOINT_STATUS_INVALID_HANDLE, error, "freed");
  char *json = NULL;
  status = ridgepoint_model_json(model, &json, &error);
  expect("use after free", status, RIDGEPOINT_STATUS_INVALID_HANDLE, error, "freed");
  printf("bad input: %d failures\n", failures);
  return failures != 0;
}
