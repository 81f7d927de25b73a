import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { choicesOf, fieldRows, kindOf, learn, rowOf } from "../../src/arguments.js";
import { gridToml, loadCommand, stepCommand, sweepCommand } from "../../src/commands.js";
import { fieldOf, remedies } from "../../src/problems.js";
import { configurations, fromHash, gridBody, initial, ownSweepBody, serverBody, toHash } from "../../src/state.js";
import { ROWS } from "./rows.mjs";

beforeEach(() => learn(ROWS));

const body = (given) => serverBody({ ...initial(), ...given });

test("what is modelled of a server and its prediction, and has a flag, has a field", () => {
  const names = fieldRows().map(({ name }) => name);
  assert.ok(names.includes("enable_prefix_caching") && names.includes("correction"));
  for (const name of ["model", "speculative_model", "cpu_offload", "seed"]) assert.ok(!names.includes(name), name);
});

test("a field is of the kind that its schema says", () => {
  const kinds = {
    tensor_parallel_size: "whole",
    gpu_memory_utilization: "number",
    enforce_eager: "switch",
    engine: "choice",
    kv_cache_dtype: "choice",
    correction: "choice",
    engine_version: "text",
    cudagraph_capture_sizes: "text",
    num_gpu_blocks_override: "text",
    override_generation_config: "json",
    kv_transfers: "json",
  };
  for (const [name, kind] of Object.entries(kinds)) assert.equal(kindOf(rowOf(name)), kind, name);
  assert.deepEqual(choicesOf(rowOf("correction")), ["none", "global", "auto"]);
  assert.deepEqual(choicesOf(rowOf("kv_cache_dtype")), ["auto", "fp8", "fp8_e4m3", "bfloat16"]);
});

test("a value reaches the request in the form of its schema", () => {
  assert.equal(body({ enable_prefix_caching: "false" }).enable_prefix_caching, false);
  assert.equal(body({ enforce_eager: "1" }).enforce_eager, true);
  assert.equal(body({ num_gpu_blocks_override: "5000" }).num_gpu_blocks_override, 5000);
  assert.equal(body({ num_gpu_blocks_override: "auto" }).num_gpu_blocks_override, "auto");
  assert.equal(body({ engine_version: "0.20" }).engine_version, "0.20");
  assert.equal(body({ cudagraph_capture_sizes: "1,2,4" }).cudagraph_capture_sizes, "1,2,4");
  assert.deepEqual(body({ override_generation_config: '{"temperature": 0}' }).override_generation_config, { temperature: 0 });
  assert.equal(body({ override_generation_config: "{temperature" }).override_generation_config, "{temperature");
  assert.ok(!("max_num_seqs" in body({})));
});

test("a command says the same, and a step's leaves the scheduler out", () => {
  const state = {
    ...initial(),
    enable_prefix_caching: "false",
    override_generation_config: '{"temperature": 0}',
    kv_transfers: '{"gpu_to_cpu": {}}',
  };
  const command = loadCommand(state);
  assert.match(command, / --no-enable-prefix-caching /);
  assert.match(command, / --override-generation-config '\{"temperature":0\}' /);
  assert.match(command, / --kv-transfers kv_transfers\.json /);
  assert.match(stepCommand(state), / --override-generation-config /);
  assert.doesNotMatch(stepCommand(state), /prefix-caching|kv-transfers/);
});

test("a grid has objects in place and lists as one value, and how steps are predicted beside it", () => {
  const state = {
    ...initial(),
    cudagraph_capture_sizes: "1,2,4",
    override_generation_config: '{"temperature": 0, "top_k": null}',
    enable_prefix_caching: "false",
    engine: "sglang",
  };
  const { server, engine } = ownSweepBody(state);
  assert.deepEqual([server.enable_prefix_caching, engine, "engine" in server], [false, "sglang", false]);
  const [first] = configurations(gridBody({ ...state, grid_tp: "2" }));
  assert.deepEqual([first.server.cudagraph_capture_sizes, first.server.tensor_parallel_size], ["1,2,4", 2]);
  const toml = gridToml(state);
  assert.match(toml, /^\[server\]\n/);
  assert.match(toml, /^override_generation_config = \{ temperature = 0 \}$/m);
  assert.match(toml, /^cudagraph_capture_sizes = "1,2,4"$/m);
  assert.match(sweepCommand(state), / --engine sglang$/);
});

test("a permalink has arguments under their names, and before the list is there any key may be one", () => {
  const state = { ...initial(), enforce_eager: "1", enable_prefix_caching: "false" };
  assert.equal(toHash(state), "step?enforce_eager=1&enable_prefix_caching=false");
  assert.deepEqual(fromHash(toHash(state)), { state, unknown: [] });
  assert.deepEqual(fromHash("#step?cpu_offload=1&model=a").unknown, ["cpu_offload"]);
  learn([]);
  const early = fromHash("#step?enforce_eager=1");
  assert.deepEqual([early.state.enforce_eager, early.unknown, toHash(early.state)], ["1", [], "step?enforce_eager=1"]);
});

test("a row that the page has never seen has a field, a key, a flag and faults of its own", () => {
  const novel = { ...rowOf("tensor_parallel_size"), name: "warp_factor", flag: "--warp-factor" };
  learn([...ROWS, novel]);
  const state = { ...initial(), warp_factor: "9" };
  assert.equal(serverBody(state).warp_factor, 9);
  assert.match(stepCommand(state), / --warp-factor 9 /);
  assert.equal(toHash(state), "step?warp_factor=9");
  assert.equal(fieldOf("warp_factor = 9 must be at most 8", state), "warp_factor");
  assert.equal(fieldOf("warp_factor is not a known key: known are pipeline_parallel_size", state), "warp_factor");
  assert.deepEqual(remedies("warp_factor can be at most 8"), [{ key: "warp_factor", value: "8" }]);
});
