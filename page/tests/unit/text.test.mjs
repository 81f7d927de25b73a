import assert from "node:assert/strict";
import { test } from "node:test";
import { learn } from "../../src/arguments.js";
import { pack, unpack } from "../../src/codec.js";
import { gridToml, loadCommand, memoryCommand, quoted, stepCommand, sweepCommand, toml } from "../../src/commands.js";
import { csv } from "../../src/csv.js";
import { billions, gib, listed, micros, millis, number, percent, scaled, tick } from "../../src/format.js";
import { fieldOf, placed, problemsOf, remedies } from "../../src/problems.js";
import { ladder, nearest } from "../../src/scale.js";
import { DEFAULTS } from "../../src/state.js";
import { ROWS } from "./rows.mjs";

learn(ROWS);

test("figures have three digits and the unit that suits them", () => {
  assert.equal(micros(14515.3), "14.5\u00a0ms");
  assert.equal(micros(999.6), "1.00\u00a0ms");
  assert.equal(micros(0.31), "0.310\u00a0µs");
  assert.equal(millis(45298.25), "45.3\u00a0s");
  assert.equal(scaled(92.27e12, "FLOP"), "92.3\u00a0TFLOP");
  assert.equal(scaled(999.9e9, "B/s"), "1.00\u00a0TB/s");
  assert.equal(percent(0.5537), "55.4\u00a0%");
  assert.equal(number(486912), "486,912");
  assert.equal(gib(39885733888), "37.1\u00a0GiB");
  assert.equal(gib(0.03 * 2 ** 30), "0.03\u00a0GiB");
  assert.equal(billions(70553706496), "70.6\u00a0B");
  assert.equal(tick(2.5, 2), "2.5");
  assert.equal(tick(100), "100");
  assert.deepEqual([micros(Number.NaN), millis(null), gib(undefined), percent(null)], ["–", "–", "–", "–"]);
  assert.equal(listed(["a", "b", "c"]), "a, b and c");
});

test("a slider's values rise by at most a quarter octave and end at its maximum", () => {
  const values = ladder(1000, 16);
  assert.deepEqual(values.slice(0, 6), [0, 16, 20, 24, 28, 32]);
  assert.equal(values.at(-1), 1000);
  assert.ok(values.every((value, index) => index === 0 || value > values[index - 1]));
  assert.equal(values[nearest(values, 33)], 32);
});

test("commands have the command's flags, and pasted texts become files", () => {
  const state = { ...DEFAULTS, enforce_eager: "1", chunk: "0" };
  assert.equal(
    stepCommand(state),
    "ridgepoint predict-step --model llama-3.1-70b --hardware h100_sxm --tensor-parallel-size 4 --enforce-eager --decode 64x2048 --explain",
  );
  assert.match(loadCommand(state), /^ridgepoint simulate .* --request-rate 4 --num-requests 1000 --input-len 1024 --output-len 256$/);
  assert.match(memoryCommand({ ...state, config: "{}" }), /--model config\.json .*--print-kv-capacity$/);
  assert.match(
    sweepCommand(state),
    /^cat > grid\.toml <<'END'\n\[server\]\nmodel = "llama-3\.1-70b"\nhardware = \["h100_sxm", "h200_sxm"\]\n/,
  );
  assert.match(gridToml(state), /\[slo\]\nttft_p99_ms = 1000\nitl_p99_ms = 100\n/);
});

test("a shell takes quoted words literally", () => {
  assert.equal(quoted("llama-3.1-8b"), "llama-3.1-8b");
  assert.equal(quoted("it's; rm -rf /"), "'it'\\''s; rm -rf /'");
});

test("toml has plain keys before tables", () => {
  assert.equal(toml({ b: { c: 1, e: 'x"y' }, a: [1, 2] }), 'a = [1, 2]\n[b]\nc = 1\ne = "x\\"y"\n');
});

test("csv quotes commas, quotes and line ends, and has the columns of all rows", () => {
  assert.equal(
    csv([
      { a: 1, b: 'x"y' },
      { a: null, c: "p,q" },
    ]),
    'a,b,c\r\n1,"x""y",\r\n,,"p,q"\r\n',
  );
});

test("long texts come back from a permalink, and forged ones are refused", async () => {
  const text = JSON.stringify({ hidden_size: 4096, name: "ä€𝄞" }, null, 2).repeat(50);
  const packed = await pack(text);
  assert.ok(packed.length < text.length / 4);
  assert.match(packed, /^z[\w-]+$/);
  assert.equal(await unpack(packed), text);
  assert.equal(await pack(""), "");
  await assert.rejects(unpack("zAAAA"));
  await assert.rejects(unpack("q123"));
  const bomb = await pack("0".repeat(3_000_000));
  await assert.rejects(unpack(bomb), /too long/);
});

test("a product that is too large is a matter of its largest factor", () => {
  const problem = "tensor_parallel_size × pipeline_parallel_size × data_parallel_size = 1000000000 GPUs is more than 65536";
  assert.equal(fieldOf(problem, { ...DEFAULTS, tensor_parallel_size: "1000000000" }), "tensor_parallel_size");
  assert.equal(fieldOf(problem, { ...DEFAULTS, data_parallel_size: "250000000" }), "data_parallel_size");
});

test("a problem belongs to the field that it names", () => {
  const own = { ...DEFAULTS, config: "{}" };
  assert.equal(fieldOf("tensor_parallel_size = 3 does not divide num_attention_heads = 128", DEFAULTS), "tensor_parallel_size");
  assert.equal(fieldOf("unknown model 'llama-9' (did you mean llama-2-7b?)", DEFAULTS), "model");
  assert.equal(fieldOf("num_hidden_layers is missing", own), "config");
  assert.equal(fieldOf("unknown hardware 'h100x'", DEFAULTS), "hardware");
  assert.equal(fieldOf("gpu_memory_utilization = 1.2 must be a share of the memory", DEFAULTS), "gpu_memory_utilization");
  assert.equal(fieldOf("input_len_tokens must be at least 1", DEFAULTS), "input_len");
  assert.equal(fieldOf("the sky is green", DEFAULTS), null);
});

test("the ways out of a problem are read from its words", () => {
  assert.deepEqual(
    remedies("tensor_parallel_size can be 1, 2, 4"),
    ["1", "2", "4"].map((value) => ({ key: "tensor_parallel_size", value })),
  );
  assert.deepEqual(remedies("pipeline_parallel_size = 4 would do"), [{ key: "pipeline_parallel_size", value: "4" }]);
  assert.deepEqual(remedies("max_model_len can be at most 5120"), [{ key: "max_model_len", value: "5120" }]);
  assert.deepEqual(
    remedies("unknown hardware 'h100x' (did you mean h100_sxm, h100_nvl?)"),
    ["h100_sxm", "h100_nvl"].map((value) => ({ key: "hardware", value })),
  );
});

test("remedies stand with the fault that they are for", () => {
  const problems = problemsOf({
    problems: [
      "the weights do not fit: 60.1 GiB more than gpu_memory_utilization = 0.9 of 79.2 GiB leaves",
      "tensor_parallel_size = 4 would do",
    ],
  });
  assert.deepEqual([...placed(problems, DEFAULTS).keys()], ["tensor_parallel_size"]);
});
