import assert from "node:assert/strict";
import { test } from "node:test";
import { learn } from "../../src/arguments.js";
import {
  configurations,
  DEFAULTS,
  FieldFault,
  fromHash,
  initial,
  gridBody,
  gridSize,
  ownSweepBody,
  serverBody,
  simulateBody,
  stepBody,
  toHash,
} from "../../src/state.js";
import { ROWS } from "./rows.mjs";

learn(ROWS);

test("a permalink gives back every value, and holds only what differs from the start", () => {
  assert.equal(toHash(DEFAULTS), "step");
  const changed = Object.fromEntries(
    Object.entries(initial()).map(([key, value]) => [key, key === "view" ? "capacity" : `${value}7&=#% ä`]),
  );
  const { state, unknown } = fromHash(`#${toHash(changed, changed)}`);
  assert.deepEqual(state, changed);
  assert.deepEqual(unknown, []);
});

test("the start leaves every argument but the size of the server to the engine", () => {
  const { model, hardware, ...given } = serverBody(initial());
  assert.deepEqual(given, { tensor_parallel_size: 4 });
});

test("an emptied value survives a permalink although its default is not empty", () => {
  const hash = toHash({ ...DEFAULTS, tensor_parallel_size: "" });
  assert.equal(hash, "step?tensor_parallel_size=");
  assert.equal(fromHash(hash).state.tensor_parallel_size, "");
});

test("unknown views and keys of a permalink are named", () => {
  assert.deepEqual(fromHash("#gauges?model=a&colour=red").unknown, ["gauges", "colour"]);
  const inherited = ["constructor", "toString", "__proto__"];
  assert.deepEqual(fromHash(`#step?${inherited.map((key) => `${key}=1`).join("&")}`).unknown, inherited);
  assert.equal(fromHash("#gauges?model=a").state.view, "step");
});

test("the server's body has numbers and flags of their kinds, and leaves defaults to the engine", () => {
  const state = {
    ...DEFAULTS,
    max_num_batched_tokens: "2048",
    enforce_eager: "1",
    gpu_memory_utilization: "0.85",
    kv_cache_dtype: "fp8",
    max_model_len: "",
  };
  assert.deepEqual(serverBody(state), {
    model: "llama-3.1-70b",
    hardware: "h100_sxm",
    tensor_parallel_size: 4,
    max_num_batched_tokens: 2048,
    gpu_memory_utilization: 0.85,
    kv_cache_dtype: "fp8",
    enforce_eager: true,
  });
});

test("a value that is no number goes to the server as it is, so that the server names the fault", () => {
  assert.equal(serverBody({ ...DEFAULTS, max_num_seqs: "many" }).max_num_seqs, "many");
});

test("a step has the shorthand of the command", () => {
  const body = stepBody({ ...DEFAULTS, decodes: "64", context: "2048", chunk: "512", cached: "1024" });
  assert.deepEqual([body.decode, body.prefill], [["64x2048"], ["512@1024"]]);
  assert.equal(stepBody({ ...DEFAULTS, chunk: "0" }).prefill, undefined);
  assert.throws(
    () => stepBody({ ...DEFAULTS, chunk: "0", decodes: "0" }),
    (error) => error instanceof FieldFault && error.field === "decodes",
  );
});

test("a batch that is no number is a fault, never a step without it", () => {
  for (const [key, text] of [
    ["decodes", "abc"],
    ["decodes", "-5"],
    ["context", "0"],
    ["chunk", "1.5"],
    ["cached", ""],
  ]) {
    assert.throws(
      () => stepBody({ ...DEFAULTS, [key]: text }),
      (error) => error instanceof FieldFault && error.field === key,
      `${key} = ${text}`,
    );
  }
});

test("a load has a rate or a concurrency, never both", () => {
  assert.equal(simulateBody({ ...DEFAULTS, load: "rate" }).request_rate, 4);
  const closed = simulateBody({ ...DEFAULTS, load: "concurrency", burstiness: "0.5" });
  assert.deepEqual([closed.concurrency, closed.request_rate, closed.burstiness], [32, undefined, undefined]);
});

test("a broken config is a fault at its field that says where", () => {
  assert.throws(
    () => serverBody({ ...DEFAULTS, config: '{\n  "hidden_size": 4096,\n  oops\n}' }),
    (error) => error.field === "config" && /not JSON/.test(error.message) && /line 3/.test(error.message),
  );
  assert.throws(
    () => serverBody({ ...DEFAULTS, config: "[1]" }),
    (error) => /must be a JSON object/.test(error.message),
  );
});

test("a pasted model and GPU reach a sweep as objects, and the grid keeps them", () => {
  const state = { ...DEFAULTS, config: '{"hidden_size": 1}', gpu: '{"datasheet": {}}', grid_tp: "2, 4", grid_tokens: "512" };
  for (const { server } of [ownSweepBody(state), ...configurations(gridBody(state))]) {
    assert.deepEqual([server.model, server.hardware], [{ hidden_size: 1 }, { datasheet: {} }]);
  }
  assert.equal(configurations(gridBody(state)).length, 2);
});

test("a grid is the product of its lists, and each of its sweeps has one server", () => {
  const body = gridBody({
    ...DEFAULTS,
    grid_tp: "2, 4",
    grid_tokens: "512 2048",
    grid_hardware: "h100_sxm,h200_sxm,b200_sxm",
    correction: "none",
  });
  const all = configurations(body);
  assert.equal(all.length, 2 * 2 * 3);
  assert.deepEqual(all[0].server, {
    model: "llama-3.1-70b",
    hardware: "h100_sxm",
    tensor_parallel_size: 2,
    max_num_batched_tokens: 512,
  });
  assert.equal(new Set(all.map(({ server }) => JSON.stringify(server))).size, 12);
  assert.equal(all[11].correction, "none");
  assert.deepEqual(all[11].slo, { ttft_p99_ms: 1000, itl_p99_ms: 100 });
});

test("a grid without limits is a fault, a sweep of the chosen server has its limits", () => {
  const none = { ...DEFAULTS, ttft_p99_ms: "", itl_p99_ms: "" };
  assert.throws(
    () => gridBody(none),
    (error) => error.field === "ttft_p99_ms",
  );
  assert.deepEqual(ownSweepBody({ ...none, e2e_p99_ms: "9000", ttft_mean_ms: "300", itl_p95_ms: "60" }).slo, {
    ttft_mean_ms: 300,
    itl_p95_ms: 60,
    e2e_p99_ms: 9000,
  });
});

test("the size of a grid is known without multiplying it out", () => {
  const list = (count) => Array.from({ length: count }, (_, at) => at + 1).join(",");
  const body = gridBody({ ...DEFAULTS, grid_tp: list(3000), grid_tokens: list(3000) });
  assert.equal(gridSize(body), 9_000_000 * Math.max(1, [body.server.hardware].flat().length));
  const few = gridBody({ ...DEFAULTS, grid_tp: "2, 4" });
  assert.equal(gridSize(few), configurations(few).length);
});
