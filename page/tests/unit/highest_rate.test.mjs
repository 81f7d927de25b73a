import assert from "node:assert/strict";
import { test } from "node:test";
import { brokenLimits, search } from "../../src/highest_rate.js";

/** A server that holds every rate up to `limit`, and does at most twice as many requests. */
function planted(limit) {
  const rates = [];
  const probe = async (rate) => {
    rates.push(rate);
    return { holds: rate <= limit, throughput: Math.min(rate, 2 * limit) };
  };
  return { rates, probe };
}

test("the search brackets a planted limit within two percent, in few probes", async () => {
  for (const limit of [0.02, 0.9, 8.2, 333, 9_000]) {
    const { rates, probe } = planted(limit);
    const { holds, fails } = await search(probe);
    assert.ok(holds.rate <= limit && limit < fails.rate && fails.rate <= 1.021 * holds.rate, `${limit}: ${holds.rate} to ${fails.rate}`);
    assert.ok(rates.length <= 13, `${limit}: ${rates.length} probes`);
    assert.equal(rates[0], 10_000);
  }
});

test("rates that all hold or all fail are said", async () => {
  const always = await search(planted(20_000).probe);
  assert.deepEqual([always.holds.rate, always.fails], [10_000, null]);
  const never = await search(planted(0.001).probe);
  assert.deepEqual([never.holds, never.fails.rate], [null, 0.01]);
});

test("broken limits are worded as a sweep does", () => {
  assert.equal(
    brokenLimits({ ttft_p99_ms: 1040.3876, itl_p99_ms: 9 }, { ttft_p99_ms: 1000, itl_p99_ms: 50 }),
    "ttft_p99_ms 1040.388 > 1000",
  );
  assert.equal(brokenLimits({ ttft_p99_ms: 10 }, { ttft_p99_ms: 1000 }), null);
});
