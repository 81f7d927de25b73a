// Where on the page a fault belongs, and which of its remedies can be clicked.

import { fieldRows } from "./arguments.js";
import { DEFAULTS, isKey } from "./state.js";

/** The server's words for keys that have other names on the page. */
const FIELD_OF = {
  input_len_tokens: "input_len",
  output_len_tokens: "output_len",
  request_rate_per_s: "request_rate",
  hardware: "hardware",
};

/** Keys that are words of many faults, and so say nothing of a field. */
const WORDS = ["view", "load", "context", "cached", "chunk", "filter", "config", "gpu", "engine", "seed", "model"];

/** The keys that a fault may name, the longest first. */
function keys() {
  const all = new Set([...Object.keys(DEFAULTS), ...Object.keys(FIELD_OF), ...fieldRows().map(({ name }) => name)]);
  return [...all].filter((key) => !WORDS.includes(key)).sort((a, b) => b.length - a.length);
}

/** Words of a fault that only a model's config or a GPU's figures have. */
const OF_MODEL = /unknown model|model_type|architectures|num_hidden_layers|num_attention_heads|intermediate_size|vocab_size|config/;
const OF_GPU = /unknown hardware|datasheet|interconnect|hbm_|peak_\w+_flop|sm_count|display_name/;

/** The factor of a product that has the largest value: it is the one to lower. */
function largest(factors, state) {
  const size = (key) => Number(state[key]) || 1;
  return factors.reduce((most, key) => (size(key) > size(most) ? key : most));
}

/** The field that a problem is about, or null. */
export function fieldOf(problem, state) {
  const model = state.config ? "config" : "model";
  const gpu = state.gpu ? "gpu" : "hardware";
  if (/unknown model/.test(problem)) return model;
  if (/unknown hardware/.test(problem)) return gpu;
  if (/send fewer requests/.test(problem)) return "num_requests";
  const [, product] = /^(\w+(?: × \w+)+) = /.exec(problem) ?? [];
  if (product) return largest(product.split(" × "), state);
  const [, first] = /^(\w+) (?:=|is|must|can) /.exec(problem) ?? [];
  if (fieldRows().some(({ name }) => name === first)) return first;
  for (const key of keys()) {
    if (new RegExp(`\\b${key}\\b`).test(problem)) {
      const field = FIELD_OF[key] ?? key;
      return field === "hardware" ? gpu : field;
    }
  }
  if (/\bengine\b/.test(problem) && /version/.test(problem)) return "engine_version";
  if (state.gpu && OF_GPU.test(problem)) return "gpu";
  if (OF_MODEL.test(problem) || state.config) return model;
  if (OF_GPU.test(problem)) return gpu;
  return null;
}

/** Remedies that a problem names, as `{key, value}`: "tensor_parallel_size can be 1, 2, 4", "block_size = 16 would do". */
export function remedies(problem) {
  const found = [];
  for (const [, key, list] of problem.matchAll(/\b(\w+) can be (\d+(?:, \d+)*)/g)) {
    for (const value of list.split(", ")) found.push({ key, value });
  }
  for (const [, key, value] of problem.matchAll(/\b(\w+) = ([\w.]+) would do/g)) found.push({ key, value });
  for (const [, key, value] of problem.matchAll(/\b(\w+) can be at most (\d+)/g)) found.push({ key, value });
  const meant = /did you mean ([^?]+)\?/.exec(problem);
  if (meant) {
    const key = /unknown hardware/.test(problem) ? "hardware" : "model";
    for (const value of meant[1].split(", ")) found.push({ key, value });
  }
  return found.filter(({ key }) => isKey(key));
}

/** The problems of a server's answer: single sentences, without the place that they all begin with. */
export function problemsOf(error) {
  const problems = error?.problems?.length ? error.problems : [error?.message ?? "The server gave no reason."];
  const single = problems.flatMap((problem) => problem.split(/;\s+/)).filter((problem) => problem !== "");
  // A sweep names the table of a key before it; the same fault of another request does not.
  return single.map((problem) => problem.replace(/^(\[(server|load|slo)\] |(server|load|slo)\.)/, ""));
}

/** Puts problems at fields: a map from field, or "" for none, to its problems. Remedies stand with the fault that they follow. */
export function placed(problems, state) {
  const at = new Map();
  let last = null;
  problems.forEach((problem, index) => {
    const isRemedy = last !== null && (/ would do$/.test(problem) || /^\w+ can be /.test(problem));
    if (!isRemedy) last = fieldOf(problem, state) ?? last ?? "";
    // A model that does not fit is a matter of the argument that would make it fit, not of the figures that the text has.
    const [remedy] = problems.slice(index + 1, index + 2).flatMap(remedies);
    if (!isRemedy && /do not fit|has no room/.test(problem) && remedy) last = remedy.key;
    at.set(last, [...(at.get(last) ?? []), problem]);
  });
  return at;
}
