// What the page says of its figures: of which load they are, whether the server keeps up, and what is known of their errors.

import assert from "node:assert/strict";
import { test } from "node:test";
import { holds } from "../../src/rows.js";
import { command } from "./driver.mjs";
import { browser, copied, figure, open, server, state } from "./session.mjs";

const textOf = (id) => browser.run((name) => document.getElementById(name).innerText, id);

/** Lets the page see answers of a path with other fields than the server's. */
const altered = (path, change) =>
  browser.run(
    (wanted, fields, ofRow) => {
      const real = window.fetch;
      window.fetch = async (url, init) => {
        const answer = await real(url, init);
        if (!String(url).includes(wanted)) return answer;
        const body = await answer.json();
        Object.assign(ofRow ? body.rows[0] : body, fields);
        return new Response(JSON.stringify(body), { status: answer.status, headers: answer.headers });
      };
    },
    path,
    change,
    path.includes("sweep"),
  );

test("the same question has the same answer on the page and through the command, without any default of the page's own", async () => {
  await open("load");
  await browser.settled();
  const line =
    "ridgepoint simulate --model llama-3.1-70b --hardware h100_sxm --tensor-parallel-size 4 --request-rate 4 --num-requests 1000 --input-len 1024 --output-len 256";
  const expected = JSON.parse(command(`${line} --format json`)).stages.find(({ stage }) => stage === -1);
  assert.equal(Number(await figure("ttft_p99")), expected.ttft_ms.p99);
  const columns = await browser.run(() => [...document.querySelectorAll("#load-table thead th")].map(({ dataset }) => dataset.key));
  const at = columns.indexOf("p95");
  assert.ok(at > 0, columns.join());
  const shown = await browser.run((index) => document.querySelector("#load-table tbody tr").cells[index].firstChild.value, at);
  assert.equal(Number(shown), expected.ttft_ms.p95);
  const empty = await browser.run(() => {
    const { value, placeholder } = document.getElementById("max_num_batched_tokens");
    return [value, placeholder];
  });
  assert.ok(empty[0] === "" && empty[1].startsWith("8192 on GPUs from 70 GiB"), empty.join());
});

test("the page says that it predicts, what a step is, and of which load each heading is", async () => {
  await open("load?request_rate=3&input_len=700&output_len=90&num_requests=400");
  await browser.settled();
  assert.match(await textOf("main"), /Predicted, not measured\. A step is one pass of the model over a batch/);
  assert.match(await textOf("note-load"), /^p99 at 3 req\/s; 700 \+ 90 tokens, 400 requests$/);
  assert.match(await textOf("note-capacity"), /; 700 \+ 90 tokens, [\d,]+ requests$/);
  assert.match(await textOf("note-step"), /^64 × 2,048 \+ chunk of 512; /);
  assert.match(await textOf("answer-known"), /^[a-z]+$/, "a source and no percentage that reads like a grade");
  assert.match(await textOf("load-lead"), /400 requests of 700 prompt and 90 output tokens, sent at 3 req\/s/);
});

test("TTFT p99 is shown with the known error of its predictions", async () => {
  await open("load");
  await browser.settled();
  assert.match(await textOf("load-warnings"), /predicted TTFT p99 was about 20 % too low/);
  await browser.run(() => document.getElementById("tab-capacity").click());
  assert.match(await textOf("tail-remark"), /predicted TTFT p99 was about 20 % too low/);
  await browser.type("ttft_p99_ms", "");
  await browser.settled();
  assert.equal(await textOf("tail-remark"), "");
});

test("a limit on any point of any latency reaches the search, and its figure the table", async () => {
  await open("capacity?ttft_p99_ms=&itl_p99_ms=&grid_tp=4&grid_tokens=2048&grid_hardware=h100_sxm&grid_requests=100");
  await browser.type("ttft_mean_ms", "150");
  await browser.type("e2e_p90_ms", "9000");
  await browser.settled();
  assert.match(await textOf("own-lead"), /TTFT mean below 150\sms and E2E p90 below 9\.00\ss/);
  const [, body] = /-d '(.*)'$/.exec(await copied("capacity", "curl"));
  const { slo } = JSON.parse(body);
  assert.deepEqual(slo, { ttft_mean_ms: 150, e2e_p90_ms: 9000 });
  const expected = await (
    await fetch(new URL("v1/sweep", server.url), { method: "POST", headers: { "Content-Type": "application/json" }, body })
  ).json();
  assert.equal(Number(await figure("own_rate")), holds(expected.rows[0]) ? expected.rows[0].request_rate_per_s : Number.NaN);
  await browser.run(() => document.getElementById("run-sweep").click());
  await browser.until(() => /1 configurations? in/.test(document.getElementById("sweep-note").innerText), "the end of the sweep");
  const heads = await browser.run(() => [...document.querySelectorAll("#sweep-table thead th")].map(({ innerText }) => innerText.trim()));
  assert.ok(heads.includes("TTFT mean") && heads.includes("E2E p90") && !heads.includes("ITL p99"), heads.join());
  assert.match(await browser.run(() => document.querySelector("#sweep-table caption").innerText), /within the limits, over (5,000|20,000) requests\.$/);
  assert.equal((await state()).e2e_p90_ms, "9000");
  const limits = await browser.run(() => document.querySelectorAll(".limits input").length);
  assert.equal(limits, 20, "mean, p50, p90, p95 and p99 of four latencies");
});

test("a server at its limit is not said to keep up", async () => {
  await open("load");
  await browser.settled();
  assert.match(await textOf("load-lead"), /The server keeps up\./);
  await altered("v1/simulate", { load_state: "at_limit" });
  await browser.type("request_rate", "4.5");
  await browser.until(() => document.querySelector('#overload [data-load="at_limit"]'), "the state of the load");
  await browser.settled();
  assert.match(await textOf("overload"), /^At its limit\. Latencies depend on the length of the load\./);
  assert.doesNotMatch(await textOf("load-lead"), /keeps up/);
  assert.match(await textOf("note-load"), /at its limit/);
  assert.ok(await browser.run(() => document.getElementById("tab-load").classList.contains("late")));
});

test("a rate that the server does not keep up with is no capacity", async () => {
  await open("capacity?grid_tp=4&grid_tokens=2048&grid_hardware=h100_sxm");
  await browser.settled();
  await altered("v1/sweep", { status: "ok", load_state: "overloaded", request_rate_per_s: 28.6, request_rate_per_s_per_gpu: 7.15 });
  await browser.type("ttft_p99_ms", "900");
  await browser.until(() => /does not keep up/.test(document.getElementById("note-capacity").innerText), "the state of the row");
  assert.match(await textOf("own-lead"), /At 28\.6 requests a second the server does not keep up: .*no rate that it sustains/);
  assert.equal(await figure("own_rate"), null);
  await browser.run(() => document.getElementById("run-sweep").click());
  await browser.until(() => / configurations in/.test(document.getElementById("sweep-note").innerText), "the end of the sweep");
  assert.match(await textOf("sweep-lead"), /No server of the grid holds the limits at a rate that stands/);
  assert.doesNotMatch(await textOf("sweep-lead"), /The best/);
});
