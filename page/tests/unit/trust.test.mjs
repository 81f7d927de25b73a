// Public runs vouch for predictions of their own engine and version alone.

import assert from "node:assert/strict";
import { test } from "node:test";

import { trust } from "../../src/views/known.js";

const runs = [
  { model: "m", hardware: "g", engine: "vllm-0.15", metrics: [{ metric: "e2e_mean", measured_ms: 100, predicted_ms: 104 }] },
];

test("runs of vLLM 0.15 vouch for it and for the default, whose kernels it has", () => {
  for (const engine of ["vllm-0.15", "vllm-0.14"]) assert.match(trust({ runs }, "m", "g", engine), /^One public run.*4.%/);
});

test("they vouch for no other engine and no other version", () => {
  for (const engine of ["sglang", "sglang-0.5", "trtllm", "vllm-0.24", "vllm", undefined])
    assert.match(trust({ runs }, "m", "g", engine), /^No public run/);
});
