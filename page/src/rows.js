// What a row of a sweep says: its server, whether it keeps up, and what binds it.

import { listed, millis, number, percent, whole } from "./format.js";

const NAMES = { ttft: "TTFT", itl: "ITL", tpot: "TPOT", e2e: "E2E", queue: "the queue" };

const RESOURCES = {
  compute: "compute",
  bandwidth: "memory bandwidth",
  links: "the links between GPUs",
  latency: "short kernels",
  kv_blocks: "KV blocks",
  queue: "the queue",
  host: "the host",
};

/** "ttft_p99_ms" → "TTFT p99". */
export function limitName(key) {
  const [, metric, point] = /^(\w+?)_(mean|p\d+)_ms$/.exec(key) ?? [null, key, ""];
  return `${NAMES[metric] ?? metric} ${point}`.trim();
}

/** Whether a server keeps up with its load: "keeps_up", "at_limit" or "overloaded". */
export function loadState({ load_state, keeps_up }) {
  return load_state ?? (keeps_up === false ? "overloaded" : "keeps_up");
}

/** Whether a row has a rate within the limits that does not depend on the length of the load. Only such a row can be the best. */
export function holds(row) {
  return row.status === "ok" && loadState(row) === "keeps_up";
}

/** The limits that break first above a row's rate: `{key, value, seed, limit}`; `value` is that of another `seed` where only that breaks it. */
export function broken(row) {
  const said = /(\w+) ([\d.]+)(, with another seed ([\d.]+))? > ([\d.]+)/g;
  return [...(row.limits_broken ?? "").matchAll(said)].map(([, key, value, seed, another, limit]) => ({
    key,
    value: Number(another ?? value),
    seed: Boolean(seed),
    limit: Number(limit),
  }));
}

/** The limit that binds a row. */
export function binding(row) {
  if (row.status === "cannot_run") return "cannot run";
  const key = broken(row)[0]?.key ?? row.binds;
  if (key) return limitName(key);
  return row.status === "highest_rate_holds" ? "nothing" : (row.limits_broken ?? "–");
}

/** What binds a row, with the resource behind it and the smallest margin to a limit, where they are known. */
export function binds(row) {
  const resource = row.resource ? ` (${RESOURCES[row.resource] ?? row.resource})` : "";
  const margin = Number.isFinite(row.margin_pct) ? `, margin ${percent(row.margin_pct / 100)}` : "";
  return `${binding(row)}${resource}${margin}`;
}

/** "4 × h100_sxm, tp 4, 512 tokens" */
export function serverName(row) {
  const parts = [`${row.gpus} × ${row.hardware}`, `tp ${row.tensor_parallel_size}`];
  if (row.pipeline_parallel_size > 1) parts.push(`pp ${row.pipeline_parallel_size}`);
  if (row.data_parallel_size > 1) parts.push(`dp ${row.data_parallel_size}`);
  parts.push(`${whole(row.max_num_batched_tokens)} tokens`);
  return parts.join(", ");
}

/** Two times with as many digits as tell them apart: 40.04 and 40 → "40.04 ms" and "40.00 ms". */
export function apart(a, b) {
  for (let digits = 3; digits < 9; digits += 1) {
    const texts = [millis(a, digits), millis(b, digits)];
    if (texts[0] !== texts[1]) return texts;
  }
  return [millis(a), millis(b)];
}

/** "TPOT p99 is 40.04 ms, above 40.00 ms" */
export function breaks(row) {
  const found = broken(row);
  if (found.length === 0) return row.limits_broken ?? "a limit breaks";
  return listed(
    found.map(({ key, value, seed, limit }) => {
      const [is, above] = apart(value, limit);
      return `${limitName(key)} is ${is}${seed ? " with another seed" : ""}, above ${above}`;
    }),
  );
}

/** Says of a row that has a rate and yet does not keep up with it why that rate is no capacity; empty for other rows. */
export function unsteady(row) {
  if (row.status !== "ok" || holds(row)) return "";
  const what = loadState(row) === "at_limit" ? "is at its limit" : "does not keep up";
  return `At ${number(row.request_rate_per_s)} requests a second the server ${what}: its latencies depend on the length of the load`;
}

const KEYS = ["model", "hardware", "gpus", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"];
const SAME_LOAD = ["model", "slo", "input_len_tokens", "output_len_tokens", "efficiency", "correction", "serving_engine"];

const agree = (a, b, keys) => keys.every((key) => a[key] === b[key]);

/** Puts the chosen server's row among those of a grid for the same question, unless it is one of them. Its row has `chosen`. */
export function withChosen(rows, own) {
  if (!own || rows.length === 0 || !agree(own, rows[0], SAME_LOAD)) return rows;
  const isSame = (row) => agree(row, own, [...KEYS, "max_num_batched_tokens", "max_num_seqs", "max_model_len"]);
  const at = rows.findIndex(isSame);
  if (at < 0) return [...rows, { ...own, configuration: -1, chosen: true }];
  return rows.map((row, index) => (index === at ? { ...row, chosen: true } : row));
}

/** The rows with the best first; those without a rate that stands follow. */
export function ranked(rows) {
  const rate = (row) => (holds(row) ? row.request_rate_per_s_per_gpu : -1);
  return [...rows].sort((a, b) => rate(b) - rate(a));
}
