import assert from "node:assert/strict";
import { test } from "node:test";
import { capacityCard, loadNote, sourceCard, stepNote } from "../../src/cards.js";
import { quantileLabels } from "../../src/charts/series.js";
import { apart, binding, binds, breaks, holds, limitName, loadState, ranked, unsteady, withChosen } from "../../src/rows.js";
import { DEFAULTS } from "../../src/state.js";

const plain = (text) => text.replaceAll("\u00a0", " ");

const ROW = {
  configuration: 0,
  status: "ok",
  model: "llama-3.1-70b",
  hardware: "h100_sxm",
  gpus: 4,
  tensor_parallel_size: 4,
  pipeline_parallel_size: 1,
  data_parallel_size: 1,
  max_num_batched_tokens: 8192,
  slo: "ttft_p99_ms = 1000",
  num_requests: 20000,
  request_rate_per_s: 8,
  request_rate_per_s_per_gpu: 2,
  fails_at_rate_per_s: 8.2,
  limits_broken: "ttft_p99_ms 1040.388 > 1000",
  keeps_up: true,
};

test("a row that does not keep up is never the best", () => {
  const overloaded = { ...ROW, configuration: 1, request_rate_per_s_per_gpu: 9, load_state: "overloaded" };
  const atLimit = { ...ROW, configuration: 2, request_rate_per_s_per_gpu: 8, load_state: "at_limit", keeps_up: true };
  const older = { ...ROW, configuration: 3, request_rate_per_s_per_gpu: 7, keeps_up: false };
  assert.deepEqual([overloaded, atLimit, older, ROW].map(holds), [false, false, false, true]);
  assert.equal(ranked([overloaded, atLimit, older, ROW])[0].configuration, 0);
  assert.equal(unsteady(ROW), "");
  assert.match(unsteady(atLimit), /^At 8\.00 requests a second the server is at its limit: its latencies depend on the length of the load$/);
  assert.match(unsteady(overloaded), /does not keep up/);
});

test("the state of a load is the answer's own word, and keeps_up where it has none", () => {
  assert.equal(loadState({ load_state: "at_limit", keeps_up: true }), "at_limit");
  assert.deepEqual([loadState({ keeps_up: false }), loadState({ keeps_up: null }), loadState({})], ["overloaded", "keeps_up", "keeps_up"]);
});

test("what binds has the resource and the margin where a row knows them", () => {
  assert.equal(binds(ROW), "TTFT p99");
  const full = binds({ ...ROW, binds: "ttft_p99_ms", resource: "bandwidth", margin_pct: 1.25 });
  assert.equal(plain(full), "TTFT p99 (memory bandwidth), margin 1.3 %");
  assert.equal(binding({ ...ROW, limits_broken: null, binds: "itl_p95_ms" }), "ITL p95");
  assert.deepEqual([limitName("e2e_mean_ms"), limitName("tpot_p95_ms")], ["E2E mean", "TPOT p95"]);
});

test("a value above its limit is written with as many digits as show it", () => {
  assert.deepEqual(apart(40.04, 40).map(plain), ["40.04 ms", "40.00 ms"]);
  assert.deepEqual(apart(1040.388, 1000).map(plain), ["1.04 s", "1.00 s"]);
  assert.deepEqual(apart(1000.4, 1000).map(plain), ["1.0004 s", "1.0000 s"]);
  assert.equal(plain(breaks({ limits_broken: "tpot_p99_ms 40.004 > 40" })), "TPOT p99 is 40.004 ms, above 40.000 ms");
});

test("a limit that only another seed breaks is named as such, and so is the queue", () => {
  const row = { ...ROW, limits_broken: "itl_p99_ms 49.304, with another seed 152.041 > 50, ttft_p99_ms 1040.388 > 1000", binds: "itl_p99_ms" };
  assert.equal(binding(row), "ITL p99");
  assert.equal(plain(breaks(row)), "ITL p99 is 152 ms with another seed, above 50.0 ms and TTFT p99 is 1.04 s, above 1.00 s");
  const queue = { ...ROW, limits_broken: "the queue grows: 9.000 of 10.000 per second are done", binds: "queue" };
  assert.deepEqual([binding(queue), breaks(queue)], ["the queue", "the queue grows: 9.000 of 10.000 per second are done"]);
});

test("the chosen server is a row among those of the grid, once", () => {
  const other = { ...ROW, configuration: 1, max_num_batched_tokens: 512 };
  assert.deepEqual(withChosen([ROW, other], { ...ROW }).map(({ chosen }) => chosen), [true, undefined]);
  assert.deepEqual(withChosen([other], ROW).map(({ chosen }) => chosen), [undefined, true]);
  assert.equal(withChosen([other], { ...ROW, slo: "itl_p99_ms = 50" }).length, 1, "another question");
  assert.equal(withChosen([], ROW).length, 0);
});

test("the headings say of what step and load their figures are", () => {
  assert.equal(plain(stepNote(DEFAULTS, { bound: "memory", share: 0.8 })), "64 × 2,048 + chunk of 512; memory bounds 80 %");
  assert.equal(loadNote(DEFAULTS, "keeps_up", 1000), "p99 at 4 req/s; 1,024 + 256 tokens, 1,000 requests");
  assert.match(loadNote({ ...DEFAULTS, load: "concurrency" }, "at_limit", 1000), /^p99 at 32 in flight, at its limit; /);
  const { answer, note } = capacityCard(ROW, DEFAULTS);
  assert.deepEqual([answer, note], ["8.00 req/s", "TTFT p99 binds; 1,024 + 256 tokens, 20,000 requests"]);
  const late = capacityCard({ ...ROW, load_state: "overloaded" }, DEFAULTS);
  assert.ok(late.late && /^does not keep up at this rate/.test(late.note), late.note);
  const known = sourceCard({ measured: 0.1, interpolated: 0.9 });
  assert.deepEqual([known.answer, plain(known.note)], ["interpolated", "90 % of the step's time is interpolated between measured kernels"]);
});

test("labels of quantiles keep off the curve and off each other", () => {
  const at = (...times) => quantileLabels(times.map((ms) => ({ ms })), (ms) => ms).map(({ dy }) => Math.sign(dy));
  assert.deepEqual(at(10, 50, 100), [-1, -1, -1], "above the curve, which only rises");
  assert.deepEqual(at(10, 95, 100), [-1, 1, -1], "p90 goes below where it would touch p99");
});
