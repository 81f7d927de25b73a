// Some rows as `/v1/arguments` has them, for tests without a server.

const row = (section, name, schema, more = {}) => ({
  name,
  section,
  support: "modelled",
  help: `About ${name}`,
  schema: { description: `About ${name}.`, ...schema },
  must_be: "a value",
  value_name: "N",
  default: "",
  flag: `--${name.replaceAll("_", "-")}`,
  ...more,
});
const whole = { type: "integer", minimum: 1 };
const scalar = { type: ["string", "number", "boolean"] };
const any = { type: ["string", "number", "boolean", "object", "array"] };
const text = { type: "string" };
const bool = { type: "boolean" };

export const ROWS = [
  row("server", "model", text),
  row("server", "hardware", text),
  row("server", "speculative_model", any, { support: "not_modelled" }),
  row("deployment", "tensor_parallel_size", whole, { default: "1" }),
  row("deployment", "pipeline_parallel_size", whole, { default: "1" }),
  row("deployment", "max_num_seqs", whole, { default: "256" }),
  row("deployment", "max_num_batched_tokens", whole, { default: "8192" }),
  row("deployment", "max_model_len", whole, { default: "the model's own limit" }),
  row("deployment", "gpu_memory_utilization", { type: "number" }, { default: "0.9" }),
  row("deployment", "kv_cache_dtype", scalar, { default: "auto", must_be: "auto, fp8, fp8_e4m3 or bfloat16" }),
  row("deployment", "enforce_eager", bool, { must_be: "true or false", value_name: "" }),
  row("deployment", "cudagraph_capture_sizes", { type: "array" }),
  row("deployment", "override_generation_config", { type: ["object", "string"] }, { value_name: "JSON" }),
  row("deployment", "cpu_offload", any, { flag: null }),
  row("scheduler", "enable_prefix_caching", bool, { default: "true", must_be: "true or false", value_name: "" }),
  row("scheduler", "num_gpu_blocks_override", { anyOf: [whole, { const: "auto" }] }, { value_name: "N|auto" }),
  row("scheduler", "kv_transfers", { type: ["string", "object", "array"] }, { value_name: "FILE" }),
  row("prediction", "engine", { enum: ["vllm", "sglang", "trtllm"], ...text }, { default: "vllm" }),
  row("prediction", "engine_version", scalar, { must_be: "a version such as 0.24 or 0.24.0" }),
  row("prediction", "correction", text, { default: "auto", value_name: "none|global|auto|FILE" }),
  row("load", "request_rate", { type: "number" }),
  row("load", "concurrency", whole),
  row("load", "num_requests", whole),
  row("load", "input_len", scalar),
  row("load", "output_len", scalar),
  row("load", "burstiness", { type: "number" }),
  row("load", "seed", whole),
];
