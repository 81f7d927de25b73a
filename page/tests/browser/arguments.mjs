// The fields that are made from the server's list of arguments: each reaches the request, the command and the permalink under its name.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fieldRows } from "../../src/arguments.js";
import { gridToml } from "../../src/commands.js";
import { command } from "./driver.mjs";
import { browser, copied, faultAt, figure, open, problems, server, state } from "./session.mjs";

/** The body of a copied curl. */
const bodyOf = (curl) => JSON.parse(/-d '(.*)'$/s.exec(curl)[1].replaceAll("'\\''", "'"));

/** Serves the page and the API of the server with one more argument, and keeps the bodies of steps. */
async function withArgument(row) {
  const bodies = [];
  const proxy = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    if (request.url === "/v1/predict-step") bodies.push(JSON.parse(body));
    const method = request.method;
    const headers = { "Content-Type": request.headers["content-type"] ?? "text/plain" };
    const answer = await fetch(new URL(request.url, server.url), { method, headers, body: method === "POST" ? body : undefined });
    let bytes = Buffer.from(await answer.arrayBuffer());
    if (request.url === "/v1/arguments") {
      const list = JSON.parse(bytes);
      list.arguments.push(row(list.arguments));
      bytes = Buffer.from(JSON.stringify(list));
    }
    response.writeHead(answer.status, { "Content-Type": answer.headers.get("content-type") }).end(bytes);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    proxy.closeAllConnections();
    return new Promise((resolve) => proxy.close(resolve));
  };
  return { url: `http://127.0.0.1:${proxy.address().port}/`, bodies, stop };
}

test("every argument of a server and its prediction has a field with its help and its default", async () => {
  await open();
  const shown = await browser.run(() =>
    [...document.querySelectorAll("[data-sections] [data-field], #more [data-field]")].map((box) => {
      const input = box.querySelector("input, select, textarea");
      return {
        name: input.name,
        label: box.querySelector(`label[for="${input.id}"]`).textContent,
        help: document.getElementById(input.getAttribute("aria-describedby")).textContent,
        shown: input.placeholder ?? input.options?.[0].textContent ?? "",
      };
    }),
  );
  assert.deepEqual(shown.map(({ name }) => name).sort(), fieldRows().map(({ name }) => name).sort());
  for (const { name, label, help, shown: words } of shown) {
    const row = fieldRows().find((one) => one.name === name);
    assert.deepEqual([label, help], [name, row.schema.description]);
    if (row.default) assert.equal(words, row.default, name);
  }
});

test("a value of a field reaches the request, and the copied command gives the figures of the page", async () => {
  await open("step");
  await browser.settled();
  const before = await figure("step_time_us");
  await browser.type("override_generation_config", '{"temperature": 0}');
  await browser.type("cudagraph_capture_sizes", "1, 2, 4");
  await browser.type("enable_prefix_caching", "false");
  await browser.settled();
  assert.equal(await problems(), "");
  assert.notEqual(await figure("step_time_us"), before);
  const body = bodyOf(await copied("step", "curl"));
  assert.deepEqual([body.override_generation_config, body.enable_prefix_caching], [{ temperature: 0 }, false]);
  const { step_time_us } = JSON.parse(command(`${await copied("step", "command")} --format json`));
  assert.equal(Number(await figure("step_time_us")), step_time_us);
  const { enable_prefix_caching } = await state();
  assert.equal(enable_prefix_caching, "false");
  assert.equal(await browser.run(() => document.getElementById("more-summary").innerText), "More arguments, 3 given");

  await browser.run(() => document.getElementById("tab-load").click());
  await browser.settled();
  const line = await copied("load", "command");
  assert.match(line, / --no-enable-prefix-caching /);
  const whole = JSON.parse(command(`${line} --format json`)).stages.find(({ stage }) => stage === -1);
  assert.equal(Number(await figure("ttft_p99")), whole.ttft_ms.p99);
});

test("a file of the command is JSON in the page, and is offered for download", async () => {
  await open("load?num_requests=50&kv_offloading_size=10");
  const copies = { latency_us: 30, bytes_per_s: 2e10 };
  await browser.type("kv_transfers", JSON.stringify({ gpu_to_cpu: copies, cpu_to_gpu: copies, contention: 1 }));
  await browser.settled();
  assert.equal(await problems(), "");
  const folder = mkdtempSync(path.join(os.tmpdir(), "ridgepoint-transfers-"));
  const { name, text } = await browser.saved('[data-export="load"] [data-kind="kv_transfers"]');
  assert.match(name, /^kv_transfers\.json$/);
  writeFileSync(path.join(folder, name), text);
  const whole = JSON.parse(command(`${await copied("load", "command")} --format json`, folder)).stages.find(({ stage }) => stage === -1);
  assert.equal(Number(await figure("ttft_p99")), whole.ttft_ms.p99);
  rmSync(folder, { recursive: true });
});

test("a grid has the arguments of the fold, as its command does", async () => {
  const given = new URLSearchParams({
    grid_tp: "4",
    grid_tokens: "1024",
    grid_hardware: "h100_sxm",
    grid_requests: "100",
    cudagraph_capture_sizes: "1 2 4",
    override_generation_config: '{"temperature": 0}',
    async_scheduling: "false",
  });
  await open(`capacity?${given}`);
  await browser.settled();
  await browser.run(() => document.getElementById("run-sweep").click());
  await browser.until(() => /1 configurations in/.test(document.getElementById("sweep-note").innerText), "the end of the sweep");
  assert.equal(await problems(), "");
  const folder = mkdtempSync(path.join(os.tmpdir(), "ridgepoint-grid-"));
  writeFileSync(path.join(folder, "grid.toml"), gridToml(await state()));
  const { best } = JSON.parse(command("ridgepoint sweep grid.toml --out rows.json --format json", folder));
  rmSync(folder, { recursive: true });
  const shown = await browser.run(() => document.querySelector("#sweep-table tbody data")?.value);
  assert.equal(Number(shown), best[0].request_rate_per_s_per_gpu);
});

test("permalinks have the arguments under their names", async () => {
  await open("step?kv_cache_dtype=fp8&enforce_eager=1&max_num_seqs=64&engine=sglang&correction=none&enable_expert_parallel=1");
  await browser.settled();
  assert.equal(await problems(), "");
  const values = await browser.run(() =>
    ["kv_cache_dtype", "max_num_seqs", "engine", "correction"]
      .map((id) => document.getElementById(id).value)
      .concat(["enforce_eager", "enable_expert_parallel"].map((id) => document.getElementById(id).checked)),
  );
  assert.deepEqual(values, ["fp8", "64", "sglang", "none", true, true]);
  const line = await copied("step", "command");
  for (const flag of ["--kv-cache-dtype fp8", "--enforce-eager", "--max-num-seqs 64", "--engine sglang", "--correction none"])
    assert.ok(line.includes(flag), `${flag} in ${line}`);
});

test("a fault of an argument in the fold opens the fold", async () => {
  await open("step?kv_offloading_size=-1");
  await browser.until(() => document.querySelector('[data-field="kv_offloading_size"] .fault'), "a fault at its field");
  assert.match(await faultAt("kv_offloading_size"), /at least 0/);
  assert.ok(await browser.run(() => document.getElementById("more-fold").open));
});

test("an argument that the page has never seen has a field, and its value reaches the request", async () => {
  const { url, bodies, stop } = await withArgument((rows) => ({
    ...rows.find(({ name }) => name === "max_num_seqs"),
    name: "warp_factor",
    flag: "--warp-factor",
    default: "1",
  }));
  try {
    await browser.visit(`${url}#step`);
    await browser.settled();
    assert.equal(await browser.run(() => document.getElementById("warp_factor").placeholder), "1");
    await browser.type("warp_factor", "9");
    await browser.until(() => document.querySelector('[data-field="warp_factor"] .fault'), "the server's fault at its field");
    assert.equal(bodies.at(-1).warp_factor, 9);
    assert.match(await copied("step", "command"), / --warp-factor 9 /);
    await browser.driver.sleep(300);
    assert.match(await browser.driver.getCurrentUrl(), /warp_factor=9/);
  } finally {
    await stop();
  }
});
