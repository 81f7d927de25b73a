/* ridgepoint: how long does one step of an LLM serving engine take?
 *
 * Made by cbindgen from bindings/c/src; `RIDGEPOINT_WRITE_HEADER=1 cargo test -p ridgepoint-c --test header` renews it.
 *
 * Every function may be called from any thread. Functions that can fail return a RidgepointStatus; none of them ends the
 * program, whatever is passed, but for pointers that point at nothing, lengths beyond what is there, and a model that is
 * freed while another thread is in a call on it: those are undefined. Times are microseconds.
 */

#ifndef RIDGEPOINT_H
#define RIDGEPOINT_H

#include <stddef.h>
#include <stdint.h>

/**
 * How a call ended.
 */
typedef enum {
  /**
   * Done.
   */
  RIDGEPOINT_STATUS_OK = 0,
  /**
   * A pointer that must not be NULL is.
   */
  RIDGEPOINT_STATUS_NULL_POINTER = 1,
  /**
   * A text is not UTF-8.
   */
  RIDGEPOINT_STATUS_INVALID_UTF8 = 2,
  /**
   * A value is out of its range, or lengths don't fit together.
   */
  RIDGEPOINT_STATUS_INVALID_ARGUMENT = 3,
  /**
   * No model or GPU has this name.
   */
  RIDGEPOINT_STATUS_UNKNOWN_NAME = 4,
  /**
   * A configuration or a file is not well-formed or can't be; the error text lists its problems.
   */
  RIDGEPOINT_STATUS_INVALID_INPUT = 5,
  /**
   * A file can't be read.
   */
  RIDGEPOINT_STATUS_IO = 6,
  /**
   * The model is freed already, or never was one.
   */
  RIDGEPOINT_STATUS_INVALID_HANDLE = 7,
  /**
   * A fault of the library; please report it with the error text.
   */
  RIDGEPOINT_STATUS_INTERNAL = 8,
} RidgepointStatus;

/**
 * A model on a GPU in a deployment, compiled. It never changes, so any number of threads may ask it at once; calls on it take no
 * lock and step times allocate nothing.
 *
 * Made by ridgepoint_model_create, freed by ridgepoint_model_free.
 */
typedef struct RidgepointModel RidgepointModel;

/**
 * Choices beside model and GPU. Set struct_size to sizeof(RidgepointOptions) and everything else to NULL (`= {0}` does), then
 * set what should differ. All texts are UTF-8, end with a zero byte, stay the caller's, and are needed during the call alone.
 */
typedef struct {
  /**
   * sizeof(RidgepointOptions), so that options can be added without breaking callers who know fewer.
   */
  size_t struct_size;
  /**
   * A JSON object with vLLM's engine arguments, as {"tensor_parallel_size": 4, "max_num_seqs": 128}; those left out, or
   * all with NULL, are vLLM's defaults. Keys: tensor_parallel_size, pipeline_parallel_size, data_parallel_size,
   * enable_expert_parallel, max_num_seqs, max_num_batched_tokens, max_model_len, gpu_memory_utilization,
   * kv_cache_dtype, block_size, enforce_eager, generation_config. Any other key is an error.
   */
  const char *deployment_json;
  /**
   * What real engines taught, on top of the tables: "none", "global", "auto" (the model's own correction if there is one, else
   * the global one) or the path of a file that `ridgepoint fit` wrote. NULL: "auto", or "none" with ideal efficiency.
   */
  const char *correction;
  /**
   * "tables" for calibrated efficiency, "ideal" for the textbook roofline. NULL: "tables".
   */
  const char *efficiency;
  /**
   * Folder whose models/, hardware/ and bench_data/ come before what is built in. NULL: none.
   */
  const char *data_dir;
  /**
   * The text of a Hugging Face config.json, in which case the name of the model is only what it is called. NULL: the model is
   * looked for.
   */
  const char *model_config_json;
  /**
   * The text of the hf_quant_config.json that belongs to model_config_json, or NULL.
   */
  const char *model_quant_config_json;
  /**
   * The text of the generation_config.json that belongs to model_config_json, or NULL.
   */
  const char *model_generation_config_json;
  /**
   * The text of a GPU's TOML file, in which case the name of the GPU is only what it is called. NULL: the GPU is looked for.
   */
  const char *hardware_toml;
} RidgepointOptions;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A few words on a status, for callers who passed no place for an error text. The text is static: never free it.
 */
const char *ridgepoint_status_text(int status);

/**
 * The library's version, such as "0.1.0". The text is static: never free it.
 */
const char *ridgepoint_version(void);

/**
 * Frees a text that this library gave: an error text or JSON. NULL is fine.
 */
void ridgepoint_string_free(char *text);

/**
 * Frees a model; NULL is fine.
 *
 * A model that is freed already is left alone, and RIDGEPOINT_STATUS_INVALID_HANDLE says so; so do all other functions. This is
 * checked with the few words of the handle, which stay allocated. To free a model while another thread is in a call on it is
 * undefined, as is a pointer that never was a model.
 */
RidgepointStatus ridgepoint_model_free(RidgepointModel *model);

/**
 * Makes a model: `model` on `hardware`.
 *
 * `model` is a built-in name ("llama-3.1-8b"), a Hugging Face id, or the path of a config.json or of its folder; `hardware` a
 * built-in name ("h100") or the path of a TOML file. `options` may be NULL.
 *
 * On success *out_model is the model, to be freed with ridgepoint_model_free. On failure it is NULL, and *error says why.
 *
 * Error texts, here and in all functions: `error` may be NULL. Else *error is NULL after a success, and after a failure a text
 * that is the caller's, to be freed with ridgepoint_string_free. What it pointed at before is not looked at.
 */
RidgepointStatus ridgepoint_model_create(const char *model,
                                         const char *hardware,
                                         const RidgepointOptions *options,
                                         RidgepointModel **out_model,
                                         char **error);

/**
 * Time of one engine step on the GPUs, µs: request i has num_computed_tokens[i] tokens in the KV cache before the step and
 * num_scheduled_tokens[i] processed in it (1 for a decode, the chunk for a prefill). samples[i] is 0 where the step ends without
 * a token sampled for it, which is so for a prompt's chunks before the last; samples may be NULL: all sample.
 *
 * All columns have num_requests values and stay the caller's. A request that schedules nothing is left out; a step with nothing
 * to do takes 0 µs, and with num_requests = 0 the columns may be NULL. The order of the requests does not matter. Limits of the
 * deployment (max_num_seqs, max_num_batched_tokens, max_model_len) are not checked here: ridgepoint_step_json does.
 *
 * *out_step_time_us is finite and never negative; after a failure it is as it was. Takes no lock and allocates nothing.
 */
RidgepointStatus ridgepoint_step_time_us(const RidgepointModel *model,
                                         const uint32_t *num_computed_tokens,
                                         const uint32_t *num_scheduled_tokens,
                                         const uint8_t *samples,
                                         size_t num_requests,
                                         double *out_step_time_us,
                                         char **error);

/**
 * Times of many steps, µs: step i has the requests from offsets[i] up to, but not including, offsets[i + 1] of the columns, and
 * its time goes to out_step_times_us[i]. There are num_steps + 1 offsets, of which the first is 0, none is smaller than the one
 * before, and the last is num_requests; else the call fails and writes nothing.
 *
 * As ridgepoint_step_time_us otherwise, with bit for bit the same times.
 */
RidgepointStatus ridgepoint_step_times_us(const RidgepointModel *model,
                                          const size_t *offsets,
                                          size_t num_steps,
                                          const uint32_t *num_computed_tokens,
                                          const uint32_t *num_scheduled_tokens,
                                          const uint8_t *samples,
                                          size_t num_requests,
                                          double *out_step_times_us,
                                          char **error);

/**
 * Time from a request's sending until the engine can schedule it, µs: network, HTTP, tokenisation of its num_prompt_tokens.
 */
RidgepointStatus ridgepoint_queueing_time_us(const RidgepointModel *model,
                                             uint32_t num_prompt_tokens,
                                             double *out_us,
                                             char **error);

/**
 * Time from the end of the step that sampled a token until the client has it, µs. It delays the token, not the engine.
 */
RidgepointStatus ridgepoint_output_token_processing_time_us(const RidgepointModel *model, double *out_us, char **error);

/**
 * Time of the engine's own thread per step, µs. Hidden behind the step before where scheduling is asynchronous.
 */
RidgepointStatus ridgepoint_scheduling_processing_time_us(const RidgepointModel *model, double *out_us, char **error);

/**
 * Time of the engine's own thread per request that is preempted, µs. What is lost by computing again is in the steps.
 */
RidgepointStatus ridgepoint_preemption_processing_time_us(const RidgepointModel *model, double *out_us, char **error);

/**
 * A step's breakdown as a JSON object: step_time_us with its 90 % interval from lower_us to upper_us, the roofline's bound_us,
 * total_flops, total_bytes, mfu, mbu, operators, groups, provenance, warnings. The keys are those of
 * `ridgepoint predict-step --format json`: they are added to, never renamed or dropped.
 *
 * Takes the columns of ridgepoint_step_time_us. A step without requests, a request that schedules nothing and one beyond
 * max_model_len are errors here; a step that the engine would split has a warning. *out_json is the caller's, to be freed with
 * ridgepoint_string_free, and NULL after a failure.
 */
RidgepointStatus ridgepoint_step_json(const RidgepointModel *model,
                                      const uint32_t *num_computed_tokens,
                                      const uint32_t *num_scheduled_tokens,
                                      const uint8_t *samples,
                                      size_t num_requests,
                                      char **out_json,
                                      char **error);

/**
 * What a model is made of as a JSON object: model, hardware, deployment, correction, host (the delays beside the steps), notes
 * (what the model, the deployment and the tables assume). *out_json is the caller's, to be freed with ridgepoint_string_free,
 * and NULL after a failure.
 */
RidgepointStatus ridgepoint_model_json(const RidgepointModel *model,
                                       char **out_json,
                                       char **error);

/**
 * Names of what is built in as a JSON object: models and hardware, each a list. *out_json is the caller's, to be freed with
 * ridgepoint_string_free, and NULL after a failure.
 */
RidgepointStatus ridgepoint_catalogue_json(char **out_json,
                                           char **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RIDGEPOINT_H */
