// The highest rate that a server holds within limits: a sweep of the API, or, for a pasted model or GPU, which sweeps do not take, the
// same search by replays.

import { ApiError, post } from "./api.js";
import { problemsOf } from "./problems.js";

const LOWEST_PER_S = 0.01;
const HIGHEST_PER_S = 10_000;
const PRECISION = 0.02;
const FIRST_GUESS = 0.7;

/** A rate of five significant digits. */
const rounded = (rate) => Number(rate.toPrecision(5));

/**
 * Finds the highest rate that holds: the first guess doubles until a rate fails or halves until one holds, then bisection follows.
 * `probe(rate)` gives `{holds, throughput}`. Returns what it gave for the highest rate that holds and the lowest that fails.
 */
export async function search(probe) {
  const last = { rate: HIGHEST_PER_S, ...(await probe(HIGHEST_PER_S)) };
  if (last.holds) return { holds: last, fails: null };
  let fails = last;
  let holds = null;
  let rate = Math.min(Math.max(rounded(FIRST_GUESS * (last.throughput ?? HIGHEST_PER_S)), LOWEST_PER_S), HIGHEST_PER_S / 2);
  for (;;) {
    const seen = { rate, ...(await probe(rate)) };
    if (seen.holds) holds = seen;
    else fails = seen;
    if (!holds) {
      if (rate <= LOWEST_PER_S) break;
      rate = Math.max(rate / 2, LOWEST_PER_S);
    } else if (fails.rate >= HIGHEST_PER_S && 2 * holds.rate < HIGHEST_PER_S) {
      rate = 2 * holds.rate;
    } else {
      if (fails.rate <= holds.rate * (1 + PRECISION)) break;
      rate = rounded(Math.sqrt(holds.rate * fails.rate));
      if (!(rate > holds.rate && rate < fails.rate)) break;
    }
  }
  return { holds, fails };
}

/** The figures of a replay under the names of a sweep's row. */
function figuresOf(run) {
  const row = {};
  for (const metric of ["ttft", "itl", "tpot", "e2e"]) {
    for (const point of ["mean", "p50", "p90", "p99"]) row[`${metric}_${point}_ms`] = run[`${metric}_ms`]?.[point] ?? null;
  }
  return row;
}

/** The limits that a row's figures break, as a sweep says them. */
export function brokenLimits(row, slo) {
  const broken = Object.entries(slo).filter(([key, limit]) => row[key] > limit);
  return broken.map(([key, limit]) => `${key} ${row[key].toFixed(3)} > ${limit}`).join("; ") || null;
}

/** Runs one configuration and returns its row. */
export async function highestRate(body, signal) {
  const { server, load, slo, ...sources } = body;
  if (typeof server.model === "string" && typeof server.hardware === "string") {
    const { rows } = await post("v1/sweep", body, signal);
    return rows[0];
  }
  let answer = null;
  const probe = async (rate) => {
    const { input_len_tokens: input_len, output_len_tokens: output_len, num_requests } = load;
    answer = await post("v1/simulate", { ...server, ...sources, request_rate: rate, num_requests, input_len, output_len }, signal);
    const run = answer.stages.find(({ stage }) => stage === -1);
    if (run.finished === 0 || run.rejected > 0) throw new ApiError(422, { message: "requests are longer than max_model_len" });
    const row = {
      ...figuresOf(run),
      output_tokens_per_s: run.output_tokens_per_s,
      warnings: [...answer.warnings, ...answer.notes].join("; "),
    };
    const limits_broken = brokenLimits(row, slo);
    return { holds: limits_broken === null, throughput: run.requests_per_s, row, limits_broken };
  };
  let found;
  try {
    found = await search(probe);
  } catch (error) {
    if (error.status !== 422) throw error;
    return { ...named(server), status: "cannot_run", reason: problemsOf(error.error).join("; "), limits_broken: null };
  }
  const { holds, fails } = found;
  const status = holds === null ? "lowest_rate_fails" : fails === null ? "highest_rate_holds" : "ok";
  const { rate, row } = holds ?? fails;
  const identity = named({ ...server, ...answer.deployment, model: answer.model, hardware: answer.hardware });
  return {
    ...identity,
    ...row,
    status,
    reason: null,
    request_rate_per_s: rate,
    request_rate_per_s_per_gpu: rate / identity.gpus,
    output_tokens_per_s_per_gpu: row.output_tokens_per_s / identity.gpus,
    fails_at_rate_per_s: fails?.rate ?? null,
    limits_broken: fails?.limits_broken ?? null,
  };
}

/** What a row says of its server. */
function named(server) {
  const size = (key) => Number(server[key]) || 1;
  const sizes = {
    tensor_parallel_size: size("tensor_parallel_size"),
    pipeline_parallel_size: size("pipeline_parallel_size"),
    data_parallel_size: size("data_parallel_size"),
  };
  const { model, hardware, max_num_batched_tokens } = server;
  return {
    model: typeof model === "string" ? model : "own model",
    hardware: typeof hardware === "string" ? hardware : (hardware?.display_name ?? "own GPU"),
    gpus: Object.values(sizes).reduce((product, one) => product * one, 1),
    ...sizes,
    max_num_batched_tokens: max_num_batched_tokens ?? null,
  };
}
