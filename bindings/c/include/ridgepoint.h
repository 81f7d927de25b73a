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
 * The outcome of a call.
 */
typedef enum {
  /**
   * Success.
   */
  RIDGEPOINT_STATUS_OK = 0,
  /**
   * A pointer is NULL that must not be.
   */
  RIDGEPOINT_STATUS_NULL_POINTER = 1,
  /**
   * A text is not UTF-8.
   */
  RIDGEPOINT_STATUS_INVALID_UTF8 = 2,
  /**
   * A value is out of range, or lengths do not match.
   */
  RIDGEPOINT_STATUS_INVALID_ARGUMENT = 3,
  /**
   * No model or GPU has this name.
   */
  RIDGEPOINT_STATUS_UNKNOWN_NAME = 4,
  /**
   * A configuration or a file is malformed or inconsistent; the error text lists its problems.
   */
  RIDGEPOINT_STATUS_INVALID_INPUT = 5,
  /**
   * A file cannot be read.
   */
  RIDGEPOINT_STATUS_IO = 6,
  /**
   * The model is already freed, or was never a model.
   */
  RIDGEPOINT_STATUS_INVALID_HANDLE = 7,
  /**
   * A defect of the library; please report it with the error text.
   */
  RIDGEPOINT_STATUS_INTERNAL = 8,
} RidgepointStatus;

/**
 * Directions in which KV blocks are copied.
 */
typedef enum {
  /**
   * From the GPU to host memory: a store.
   */
  RIDGEPOINT_TRANSFER_DIRECTION_GPU_TO_CPU = 0,
  /**
   * From host memory to the GPU: a load.
   */
  RIDGEPOINT_TRANSFER_DIRECTION_CPU_TO_GPU = 1,
  /**
   * From host memory to a disk: a write.
   */
  RIDGEPOINT_TRANSFER_DIRECTION_CPU_TO_DISK = 2,
  /**
   * From a disk to host memory: a read.
   */
  RIDGEPOINT_TRANSFER_DIRECTION_DISK_TO_CPU = 3,
} RidgepointTransferDirection;

/**
 * A model on a GPU in a deployment. It is immutable, so any number of threads may use it at once. Calls take no lock, and step
 * times allocate nothing.
 *
 * Created by ridgepoint_model_create, freed by ridgepoint_model_free.
 */
typedef struct RidgepointModel RidgepointModel;

/**
 * Options other than model and GPU. Set struct_size to sizeof(RidgepointOptions) and all other fields to NULL (`= {0}` does), then
 * set the fields that should differ. All texts are UTF-8, end with a zero byte, and are only read during the call.
 */
typedef struct {
  /**
   * sizeof(RidgepointOptions), so that options can be added without breaking callers compiled against fewer.
   */
  size_t struct_size;
  /**
   * A JSON object with vLLM's engine arguments, such as {"tensor_parallel_size": 4, "max_num_seqs": 128}. Arguments left
   * out have vLLM's defaults, all of them with NULL. Keys: tensor_parallel_size, pipeline_parallel_size, data_parallel_size,
   * enable_expert_parallel, max_num_seqs, max_num_batched_tokens, max_model_len, gpu_memory_utilization,
   * cpu_offload_gb, kv_cache_dtype, block_size, enforce_eager, cudagraph_mode, cudagraph_capture_sizes, max_cudagraph_capture_size,
   * attention_backend, disable_custom_all_reduce, generation_config, override_generation_config. Any other key is an error.
   */
  const char *deployment_json;
  /**
   * Correction fitted to measured engine runs: "none", "global", "auto" (the model's own correction if there is one, else
   * the global one) or the path of a file that `ridgepoint fit` wrote. NULL: "auto", or "none" with ideal efficiency.
   */
  const char *correction;
  /**
   * "tables" for calibrated efficiency, "ideal" for the textbook roofline. NULL: "tables".
   */
  const char *efficiency;
  /**
   * Folder whose models/, hardware/ and bench_data/ take precedence over the built-in ones. NULL: none.
   */
  const char *data_dir;
  /**
   * The text of a Hugging Face config.json; the name of the model then is only its label. NULL: the model is looked up.
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
   * The text of a GPU's TOML file; the name of the GPU then is only its label. NULL: the GPU is looked up.
   */
  const char *hardware_toml;
  /**
   * The text of a file of measured KV transfers, which `ridgepoint ingest --output-transfers` writes. NULL: a copy takes 20 us, and its
   * bytes at 85 % of the link between GPU and host.
   */
  const char *kv_transfers_json;
} RidgepointOptions;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Describes a status in a few words, for callers that passed no error text. The text is static and must not be freed.
 */
const char *ridgepoint_status_text(int status);

/**
 * Returns the library's version, such as "0.1.0". The text is static and must not be freed.
 */
const char *ridgepoint_version(void);

/**
 * Frees a text of this library: an error text or JSON. NULL is allowed.
 */
void ridgepoint_string_free(char *text);

/**
 * Frees a model. NULL is allowed.
 *
 * A call on a model that is already freed, here and in all functions, returns RIDGEPOINT_STATUS_INVALID_HANDLE. The few words
 * of the handle stay allocated for this check. Freeing a model while another thread uses it is undefined behaviour, as is
 * passing a pointer that was never a model.
 */
RidgepointStatus ridgepoint_model_free(RidgepointModel *model);

/**
 * Creates a model: `model` on `hardware`.
 *
 * `model` is a built-in name ("llama-3.1-8b"), a Hugging Face id, or the path of a config.json or of its folder. `hardware` is
 * a built-in name ("h100") or the path of a TOML file. `options` may be NULL.
 *
 * On success, *out_model is the model; free it with ridgepoint_model_free. On failure, it is NULL and *error says why.
 *
 * Error texts, here and in all functions: `error` may be NULL. Otherwise *error is set to NULL on success, and on failure to a
 * text that the caller frees with ridgepoint_string_free. Its previous value is ignored.
 */
RidgepointStatus ridgepoint_model_create(const char *model,
                                         const char *hardware,
                                         const RidgepointOptions *options,
                                         RidgepointModel **out_model,
                                         char **error);

/**
 * Predicts the time of one engine step on the GPUs, µs. Request i has num_computed_tokens[i] tokens in the KV cache before the
 * step, and num_scheduled_tokens[i] are processed in it (1 for a decode, the chunk for a prefill). samples[i] is 0 if no token
 * is sampled for it, as for all prefill chunks of a prompt but the last. samples may be NULL: all requests sample.
 *
 * All columns have num_requests values. A request that schedules nothing is ignored, and a step with nothing to do takes 0 µs.
 * With num_requests = 0 the columns may be NULL. The order of the requests does not matter. Limits of the deployment
 * (max_num_seqs, max_num_batched_tokens, max_model_len) are not checked; ridgepoint_step_json checks them.
 *
 * *out_step_time_us is finite and never negative, and unchanged after a failure. Takes no lock and allocates nothing.
 */
RidgepointStatus ridgepoint_step_time_us(const RidgepointModel *model,
                                         const uint32_t *num_computed_tokens,
                                         const uint32_t *num_scheduled_tokens,
                                         const uint8_t *samples,
                                         size_t num_requests,
                                         double *out_step_time_us,
                                         char **error);

/**
 * Predicts the times of many steps, µs. Step i has the requests from offsets[i] up to, but not including, offsets[i + 1] of the
 * columns, and its time goes to out_step_times_us[i]. There are num_steps + 1 ascending offsets, from 0 to num_requests;
 * otherwise the call fails and writes nothing.
 *
 * The times are those of ridgepoint_step_time_us, to the bit.
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
 * Time from sending a request until the engine can schedule it, µs: network, HTTP, tokenisation of num_prompt_tokens.
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
 * Time of the engine's host thread per step, µs. Asynchronous scheduling hides it behind the previous step.
 */
RidgepointStatus ridgepoint_scheduling_processing_time_us(const RidgepointModel *model, double *out_us, char **error);

/**
 * Time of the engine's host thread per preempted request, µs. The recomputed tokens are part of later steps.
 */
RidgepointStatus ridgepoint_preemption_processing_time_us(const RidgepointModel *model, double *out_us, char **error);

/**
 * Time to copy `bytes` of KV blocks between the GPU and host memory, or between host memory and a disk, while nothing else is copied,
 * µs. The copy runs concurrently with the steps, and a request that loads its blocks waits for it. `direction` is a RidgepointTransferDirection;
 * another number fails, as does a GPU whose link to the host is not known. On several GPUs, `bytes` are those of one, as all copy
 * their shares at the same time; those of a disk are of all GPUs together.
 */
RidgepointStatus ridgepoint_kv_transfer_time_us(const RidgepointModel *model,
                                                int direction,
                                                uint64_t bytes,
                                                double *out_us,
                                                char **error);

/**
 * Share of its speed that a direction of copies keeps while the other one copies too, from 0 to 1: that of kv_transfers_json, or else 1.
 */
RidgepointStatus ridgepoint_kv_contention(const RidgepointModel *model,
                                          double *out_share,
                                          char **error);

/**
 * Returns a step's breakdown as a JSON object: step_time_us with its 90 % interval from lower_us to upper_us, the roofline's
 * bound_us, total_flops, total_bytes, mfu, mbu, operators, groups, provenance, warnings. The keys are those of
 * `ridgepoint predict-step --format json`. New keys may be added; keys are never renamed or removed.
 *
 * Takes the columns of ridgepoint_step_time_us. A step without requests, a request that schedules nothing and a request beyond
 * max_model_len are errors. A step that the engine would split has a warning. The caller frees *out_json with
 * ridgepoint_string_free; it is NULL after a failure.
 */
RidgepointStatus ridgepoint_step_json(const RidgepointModel *model,
                                      const uint32_t *num_computed_tokens,
                                      const uint32_t *num_scheduled_tokens,
                                      const uint8_t *samples,
                                      size_t num_requests,
                                      char **out_json,
                                      char **error);

/**
 * Describes a model as a JSON object: model, hardware, deployment, correction, host (delays of the host), notes (assumptions
 * about the model, the deployment and the tables). The caller frees *out_json with ridgepoint_string_free; it is NULL after a
 * failure.
 */
RidgepointStatus ridgepoint_model_json(const RidgepointModel *model,
                                       char **out_json,
                                       char **error);

/**
 * Lists the built-in names as a JSON object with the lists models and hardware. The caller frees *out_json with
 * ridgepoint_string_free; it is NULL after a failure.
 */
RidgepointStatus ridgepoint_catalogue_json(char **out_json, char **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RIDGEPOINT_H */
