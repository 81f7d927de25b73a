// The arguments that the server knows, as its list `/v1/arguments` has them: what a field of each is, and what its text means in a request.

/** Sections whose arguments have fields of the setup form, with their titles. A load's arguments have controls of their own. */
export const SECTIONS = { deployment: "Deployment", scheduler: "Scheduler and KV cache", prediction: "Engine and prediction" };

/** Arguments whose fields are visible at once, in their order. All others stand in a fold. */
export const FIRST = [
  "tensor_parallel_size",
  "pipeline_parallel_size",
  "data_parallel_size",
  "enable_expert_parallel",
  "kv_cache_dtype",
  "max_model_len",
  "max_num_seqs",
  "max_num_batched_tokens",
  "gpu_memory_utilization",
  "enforce_eager",
  "engine",
  "engine_version",
  "efficiency",
  "correction",
];

let rows = new Map();
let fields = [];

/** Takes the server's list. The command must know an argument that has a field, because every view gives its command. */
export function learn(list) {
  rows = new Map(list.map((row) => [row.name, row]));
  fields = list.filter(({ section, support, flag }) => section in SECTIONS && support === "modelled" && flag);
}

/** Whether the list is there. */
export function isLearned() {
  return rows.size > 0;
}

/** The row of an argument of any section. */
export function rowOf(name) {
  return rows.get(name);
}

/** The rows that have fields. */
export function fieldRows() {
  return fields;
}

function types({ schema }) {
  return [schema.type ?? (schema.anyOf ?? []).map(({ type }) => type)].flat();
}

/** Whether the command reads the value from a file, which a request holds in place. */
export function isFile(row) {
  return row.value_name === "FILE";
}

/** The file that the command reads in place of a value. */
export function fileOf(row) {
  return `${row.name}.json`;
}

/** What a field is: `json`, `switch`, `choice`, `whole`, `number` or `text`. */
export function kindOf(row) {
  const all = types(row);
  if (all.includes("object")) return "json";
  if (row.schema.type === "boolean") return "switch";
  if (choicesOf(row).length > 0) return "choice";
  if (row.schema.type === "number") return "number";
  return row.schema.type === "integer" ? "whole" : "text";
}

/** The values that an argument can have, as texts; none if they have no list. Files of the command are no choice of a request. */
export function choicesOf({ schema, value_name, must_be }) {
  if (schema.type === "boolean") return ["true", "false"];
  if (schema.enum) return schema.enum;
  const words = value_name.split("|").filter((word) => word !== "FILE");
  if (words.length > 1 && words.every((word) => /^[a-z]/.test(word))) return words;
  return /^\w+(, \w+)* or \w+$/.test(must_be) ? must_be.split(/, | or /) : [];
}

/** A text as a number, if it is one. Any other text stays as it is, so that the server names the fault. */
export function numeric(text) {
  return text.trim() === "" || !Number.isFinite(Number(text)) ? text : Number(text);
}

/** Whether the text of a switch means that it is on. */
export function isOn(text) {
  return text === "1" || text === "true";
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The value of a field's text as a request has it. Lists stay texts, because a list in a grid has one value for each server. */
export function valueOf(row, text) {
  if (isOn(text) && row.schema.type === "boolean") return true;
  if (/^(0|false)$/.test(text) && row.schema.type === "boolean") return false;
  if (kindOf(row) === "json") return parsed(text);
  return types(row).some((type) => type === "integer") || row.schema.type === "number" ? numeric(text) : text;
}
