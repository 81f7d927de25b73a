// The whole state of the page: its defaults, the permalink that holds it, and the requests and commands that it means.

import { fieldRows, isLearned, numeric, rowOf, valueOf } from "./arguments.js";

/** Latencies and their points that may have limits, and that the load's table shows. */
export const LATENCIES = ["ttft", "tpot", "itl", "e2e"];
export const POINTS = ["mean", "p50", "p90", "p95", "p99"];

/** Limits by their keys in [slo]: "ttft_mean_ms", …, "e2e_p99_ms". */
export const LIMITS = LATENCIES.flatMap((latency) => POINTS.map((point) => `${latency}_${point}_ms`));

export const VIEWS = ["step", "load", "capacity", "memory", "known"];

/**
 * Values of a page that is opened without a permalink. Other arguments start empty, which means the engine's default. All values are
 * texts, as in the permalink.
 */
export const DEFAULTS = Object.freeze({
  view: "step",
  model: "llama-3.1-70b",
  config: "",
  hardware: "h100_sxm",
  gpu: "",
  tensor_parallel_size: "4",
  decodes: "64",
  context: "2048",
  chunk: "512",
  cached: "0",
  load: "rate",
  request_rate: "4",
  concurrency: "32",
  input_len: "1024",
  output_len: "256",
  num_requests: "1000",
  burstiness: "",
  seed: "",
  ...Object.fromEntries(LIMITS.map((key) => [key, ""])),
  ttft_p99_ms: "1000",
  itl_p99_ms: "100",
  grid_tp: "2,4,8",
  grid_hardware: "h100_sxm,h200_sxm",
  grid_tokens: "512,2048,8192",
  grid_requests: "500",
  filter: "",
});

/** Keys whose texts are long, and which a permalink therefore holds packed. */
export const PACKED = ["config", "gpu"];

/** The state of a page that is opened without a permalink. */
export function initial() {
  return { ...Object.fromEntries(fieldRows().map(({ name }) => [name, ""])), ...DEFAULTS };
}

/** Whether the state has a key. Before the server's list of arguments is there, any key may be one of them. */
export function isKey(key) {
  return Object.hasOwn(DEFAULTS, key) || !isLearned() || fieldRows().some(({ name }) => name === key);
}

/** The permalink's part after `#`. `packed` has the packed texts of the keys in `PACKED`. */
export function toHash(state, packed = {}) {
  const query = new URLSearchParams();
  for (const key of Object.keys({ ...DEFAULTS, ...state })) {
    if (key === "view") continue;
    const value = PACKED.includes(key) ? (packed[key] ?? "") : state[key];
    if (value !== (DEFAULTS[key] ?? "")) query.set(key, value);
  }
  const text = query.toString().replaceAll("%2C", ",");
  return text ? `${state.view}?${text}` : state.view;
}

/** Reads a permalink. Returns the state, with packed texts still packed, and the keys that it does not know. */
export function fromHash(hash) {
  const text = hash.replace(/^#/, "");
  const cut = text.indexOf("?");
  const view = cut < 0 ? text : text.slice(0, cut);
  const state = initial();
  const unknown = [];
  if (VIEWS.includes(view)) state.view = view;
  else if (view) unknown.push(view);
  for (const [key, value] of new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1))) {
    if (isKey(key) && key !== "view") state[key] = value;
    else unknown.push(key);
  }
  return { state, unknown };
}

/** A fault that the page finds itself, at a field. */
export class FieldFault extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function parsed(text, field, what) {
  let object;
  try {
    object = JSON.parse(text);
  } catch (error) {
    throw new FieldFault(field, `${what} is not JSON: ${error.message}${place(text, error.message)}`);
  }
  if (object === null || typeof object !== "object" || Array.isArray(object)) {
    throw new FieldFault(field, `${what} must be a JSON object, as in {"hidden_size": 4096, …}`);
  }
  return object;
}

/** Line and column of a fault, for browsers that only say its position. */
function place(text, message) {
  const found = /position (\d+)(?!.*line)/.exec(message);
  if (!found) return "";
  const before = text.slice(0, Number(found[1])).split("\n");
  return ` (line ${before.length}, column ${before.at(-1).length + 1})`;
}

/** The server's keys of a request. */
export function serverBody(state) {
  const body = {
    model: state.config ? parsed(state.config, "config", "The config") : state.model,
    hardware: state.gpu ? parsed(state.gpu, "gpu", "The GPU's figures") : state.hardware,
  };
  for (const row of fieldRows()) {
    const text = state[row.name] ?? "";
    if (text !== "") body[row.name] = valueOf(row, text);
  }
  return body;
}

/** A count of the batch. Only digits will do, because the shorthand has other signs of its own. */
function count(state, key, least, what) {
  if (/^\d{1,10}$/.test(state[key]) && Number(state[key]) >= least) return Number(state[key]);
  throw new FieldFault(key, `${what} = "${state[key]}" must be a whole number, at least ${least}.`);
}

/** The batch of a step in the command's shorthand. */
export function batch(state) {
  const shorthand = {};
  const chunk = count(state, "chunk", 0, "The prefill chunk");
  if (chunk > 0) shorthand.prefill = [`${chunk}@${count(state, "cached", 0, "The number of cached tokens")}`];
  const decodes = count(state, "decodes", 0, "The number of decodes");
  if (decodes > 0) shorthand.decode = [`${decodes}x${count(state, "context", 1, "The context")}`];
  return shorthand;
}

/** The body of /v1/predict-step. */
export function stepBody(state) {
  const shorthand = batch(state);
  if (!shorthand.prefill && !shorthand.decode) {
    throw new FieldFault("decodes", "The step has no request: give at least one decode or a prefill chunk.");
  }
  return { ...serverBody(state), ...shorthand, explain: true };
}

/** The load's keys of /v1/simulate. */
function loadBody(state) {
  const body = state.load === "rate" ? { request_rate: numeric(state.request_rate) } : { concurrency: numeric(state.concurrency) };
  for (const key of ["num_requests", "input_len", "output_len", "burstiness", "seed"]) {
    if (state[key] === "" || (key === "burstiness" && state.load !== "rate")) continue;
    body[key] = numeric(state[key]);
  }
  return body;
}

/** The body of /v1/simulate. */
export function simulateBody(state) {
  return { ...serverBody(state), ...loadBody(state), series: true };
}

function numbers(text) {
  return text
    .split(/[\s,;]+/)
    .filter((part) => part !== "")
    .map(numeric);
}

/** The limits that are set, by key. */
export function limits(state) {
  const set = {};
  for (const key of LIMITS) if (state[key] !== "") set[key] = numeric(state[key]);
  return set;
}

function sweepLoad(state) {
  return {
    input_len_tokens: numeric(state.input_len),
    output_len_tokens: numeric(state.output_len),
    num_requests: numeric(state.grid_requests),
  };
}

/** Splits the keys that say where times come from off a server's keys: a sweep has them next to its grid. */
function splitSources(body) {
  const server = {};
  const sources = {};
  for (const [key, entry] of Object.entries(body)) {
    const isSource = rowOf(key)?.section === "prediction";
    (isSource ? sources : server)[key] = entry;
  }
  return { server, sources };
}

/** The sweep of the one server that is chosen: the highest rate within the limits. */
export function ownSweepBody(state) {
  const { server, sources } = splitSources(serverBody(state));
  return { server, load: sweepLoad(state), slo: limits(state), ...sources };
}

/** The whole grid as one sweep. */
export function gridBody(state) {
  const { server, load, slo, ...sources } = ownSweepBody(state);
  if (Object.keys(slo).length === 0) throw new FieldFault("ttft_p99_ms", "Set at least one limit: without one, any rate holds.");
  const lists = {
    hardware: state.gpu ? [] : state.grid_hardware.split(",").filter(Boolean),
    tensor_parallel_size: numbers(state.grid_tp),
    max_num_batched_tokens: numbers(state.grid_tokens),
  };
  for (const [key, list] of Object.entries(lists)) if (list.length > 0) server[key] = list;
  return { server, load, slo, ...sources };
}

/** The number of a grid's configurations: the product of its lists' lengths, none of which is multiplied out. */
export function gridSize(body) {
  return Object.values(body.server).reduce((size, entry) => size * (Array.isArray(entry) ? entry.length : 1), 1);
}

/** The grid's configurations as sweeps of one each, so that progress shows and a cancel loses no finished row. */
export function configurations(body) {
  let servers = [{}];
  for (const [key, entry] of Object.entries(body.server)) {
    const list = Array.isArray(entry) ? entry : [entry];
    servers = servers.flatMap((server) => list.map((one) => ({ ...server, [key]: one })));
  }
  return servers.map((server) => ({ ...body, server }));
}
