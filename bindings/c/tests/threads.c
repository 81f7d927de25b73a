/* Threads that hammer one model for some seconds (first argument, 3 if left out): each step must take the same time in all of
 * them, to the last bit, and models that others make and free meanwhile must not matter. 0 where that is so. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ridgepoint.h"

enum { THREADS = 8, STEPS = 64, MOST_REQUESTS = 256 };

static const RidgepointModel *shared;
static double expected_us[STEPS];
static double seconds = 3;
static atomic_int failures;
static atomic_ulong calls;

static double now_s(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Step `index`: always the same requests. */
static double step_us(size_t index) {
  uint32_t computed[MOST_REQUESTS], scheduled[MOST_REQUESTS];
  uint8_t samples[MOST_REQUESTS];
  const size_t requests = 1 + index * 37 % MOST_REQUESTS;
  for (size_t i = 0; i < requests; i++) {
    computed[i] = (uint32_t)((index * 7919 + i * 104729) % 8192);
    scheduled[i] = i % 50 == index % 50 ? 256 : 1;
    samples[i] = i % 3 != 0;
  }
  double us = -1;
  RidgepointStatus status = ridgepoint_step_time_us(shared, computed, scheduled, samples, requests, &us, NULL);
  return status == RIDGEPOINT_STATUS_OK ? us : -1;
}

static void *hammer(void *argument) {
  const size_t first = *(const size_t *)argument;
  const double until_s = now_s() + seconds;
  do {
    for (size_t i = 0; i < STEPS; i++) {
      const size_t index = (first + i) % STEPS;
      const double us = step_us(index);
      if (us < 0 || us != expected_us[index]) atomic_fetch_add(&failures, 1);
      atomic_fetch_add(&calls, 1);
    }
  } while (now_s() < until_s);
  return NULL;
}

static void *make_and_free(void *argument) {
  (void)argument;
  const double until_s = now_s() + seconds;
  do {
    RidgepointModel *model = NULL;
    char *error = NULL;
    RidgepointStatus made = ridgepoint_model_create("llama-3.1-8b", "h200", NULL, &model, &error);
    if (made != RIDGEPOINT_STATUS_OK || ridgepoint_model_free(model) != RIDGEPOINT_STATUS_OK ||
        ridgepoint_model_free(model) != RIDGEPOINT_STATUS_INVALID_HANDLE)
      atomic_fetch_add(&failures, 1);
    ridgepoint_string_free(error);
  } while (now_s() < until_s);
  return NULL;
}

int main(int count, char **arguments) {
  if (count > 1) seconds = atof(arguments[1]);
  RidgepointModel *model = NULL;
  if (ridgepoint_model_create("llama-3.1-8b", "h100", NULL, &model, NULL) != RIDGEPOINT_STATUS_OK) return 1;
  shared = model;
  for (size_t i = 0; i < STEPS; i++) expected_us[i] = step_us(i);

  pthread_t threads[THREADS + 1];
  size_t firsts[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    firsts[i] = i * 11;
    if (pthread_create(&threads[i], NULL, hammer, &firsts[i]) != 0) return 1;
  }
  if (pthread_create(&threads[THREADS], NULL, make_and_free, NULL) != 0) return 1;
  for (size_t i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
  ridgepoint_model_free(model);
  printf("threads: %lu calls of %d threads in %g s, %d failures\n", atomic_load(&calls), THREADS, seconds,
         atomic_load(&failures));
  return atomic_load(&failures) != 0;
}
