// Looks at every view in both themes and on a phone: axe's rules, sideways scrolling, the console, and pictures that are kept.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { VIEWS } from "../../src/state.js";
import { browser, open } from "./session.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

async function show(view) {
  await browser.run((name) => document.getElementById(`tab-${name}`).click(), view);
  await browser.settled();
}

const LOOKS = { light: {}, dark: { theme: "dark" }, phone: { width: 360, height: 740 } };

for (const [name, look] of Object.entries(LOOKS)) {
  test(`every view in ${name}: no serious violation of axe, and no sideways scrolling`, async () => {
    await browser.look(look);
    const found = [];
    // The whole heat map once: axe takes long over its cells, which differ in nothing but their texts.
    const whole = name === "light";
    await open(whole ? "" : "step?filter=llama");
    await browser.driver.executeScript(AXE);
    await browser.run(() => {
      for (const id of ["setup-fold", "more-fold"]) document.getElementById(id).open = true;
    });
    for (const view of VIEWS) {
      await show(view);
      if (view === "known") await browser.until(() => document.querySelectorAll("#support td").length > 100, "the heat map");
      await browser.shot(`${view}-${name}`);
      const [wide, room] = await browser.run(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= room, `${view} is ${wide} px wide in ${room} px`);
      const { violations } = await browser.driver.executeAsyncScript(
        "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then(done)",
      );
      found.push(
        ...violations.map(({ id, impact, nodes }) => ({ view, id, impact, at: nodes.slice(0, 3).map(({ target }) => target.join(" ")) })),
      );
    }
    const serious = found.filter(({ impact }) => impact === "serious" || impact === "critical");
    console.log(`axe, ${name}: ${found.length} violations, ${serious.length} of them serious or critical ${JSON.stringify(found)}`);
    assert.deepEqual(serious, []);
    await browser.look();
  });
}

test("no table is cut at a laptop's width, and the reason of a server that cannot run has a line of its own", async () => {
  await browser.look({ width: 1440 });
  await open("capacity?model=llama-3.1-405b&grid_tp=1,8&grid_tokens=1024&grid_hardware=h100_sxm&grid_requests=50");
  await browser.run(() => document.getElementById("run-sweep").click());
  await browser.until(() => / configurations in/.test(document.getElementById("sweep-note").innerText), "the end of the sweep");
  const reason = await browser.run(() => {
    const line = document.querySelector("#sweep-table .detail-row .remark");
    const { right } = line.getBoundingClientRect();
    return { text: line.innerText, right, edge: document.querySelector("#sweep-block .scroll").getBoundingClientRect().right };
  });
  assert.match(reason.text, /weights|KV cache/);
  assert.ok(reason.right <= reason.edge, JSON.stringify(reason));
  for (const view of VIEWS) {
    await show(view);
    if (view === "known") await browser.until(() => document.querySelectorAll("#measured-table td").length > 10, "the public runs");
    const cut = await browser.run(() =>
      [...document.querySelectorAll(".scroll")]
        .filter((box) => box.offsetParent && box.scrollWidth > box.clientWidth)
        .map((box) => `${box.querySelector("table").id}: ${box.scrollWidth} px in ${box.clientWidth} px`),
    );
    assert.deepEqual(cut, [], view);
  }
  await browser.look();
});

test("the heat map cuts no row, and a phone shows all GPUs", async () => {
  for (const look of [{}, LOOKS.phone]) {
    await browser.look(look);
    await open("known");
    await browser.until(() => document.querySelectorAll("#support td").length > 1000, "the heat map");
    const { cut, right, edge } = await browser.run(() => {
      const box = document.getElementById("support").parentElement;
      const { top, right: side } = box.getBoundingClientRect();
      const end = top + box.clientTop + box.clientHeight;
      const rows = [...document.querySelectorAll("#support tbody tr")].map((row) => row.getBoundingClientRect());
      return {
        cut: rows.filter((row) => row.top < end - 2 && row.bottom > end + 2).length,
        right: document.querySelector("#support thead th:last-child").getBoundingClientRect().right,
        edge: side,
      };
    });
    assert.equal(cut, 0, "rows that the edge cuts");
    assert.ok(right <= edge, `the last GPU ends at ${right} px of ${edge} px`);
  }
  await browser.look();
});

test("the words of a chart stand apart", async () => {
  for (const [view, id] of [
    ["memory?max_model_len=131072", "memory-fit"],
    ["load", "quantiles"],
  ]) {
    await open(view);
    await browser.settled();
    const touching = await browser.run((chart) => {
      const boxes = [...document.querySelectorAll(`#${chart} svg`)].map((svg) =>
        [...svg.querySelectorAll("text")].map((word) => ({ word: word.textContent, box: word.getBoundingClientRect() })),
      );
      const meet = (a, b) => a.left < b.right + 2 && b.left < a.right + 2 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
      return boxes.flatMap((words) =>
        words.flatMap(({ word, box }, at) => words.slice(at + 1).flatMap((other) => (meet(box, other.box) ? [`${word} and ${other.word}`] : []))),
      );
    }, id);
    assert.deepEqual(touching, [], view);
  }
});

test("names of arguments break between words, and each bound has a colour of its own", async () => {
  await open();
  assert.equal(
    await browser.run(() => document.querySelector('label[for="max_num_batched_tokens"]').innerHTML),
    "max_<wbr>num_<wbr>batched_<wbr>tokens",
  );
  const colours = await browser.run(() =>
    ["compute", "memory", "network", "latency", "power"].map((name) =>
      getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
    ),
  );
  assert.ok(colours.every(Boolean) && new Set(colours).size === 5, colours.join());
});

test("dark is the system's choice and the reader's", async () => {
  const dark = () =>
    browser.run(() =>
      getComputedStyle(document.body)
        .backgroundColor.match(/\d+/g)
        .every((part) => Number(part) < 60),
    );
  await browser.look({ theme: "dark" });
  await open();
  assert.ok(await dark());
  await browser.run(() => {
    const choice = document.getElementById("theme");
    choice.value = "light";
    choice.dispatchEvent(new Event("change", { bubbles: true }));
  });
  assert.ok(!(await dark()));
  await open();
  assert.ok(!(await dark()), "the choice lasts");
  await browser.run(() => localStorage.clear());
  await browser.look();
});

test("nothing is loaded from elsewhere, and the console is silent", async () => {
  await browser.complaints();
  await open();
  for (const view of VIEWS) {
    await show(view);
    const elsewhere = await browser.run(() =>
      performance
        .getEntriesByType("resource")
        .map(({ name }) => name)
        .filter((name) => new URL(name).origin !== location.origin),
    );
    assert.deepEqual(elsewhere, []);
  }
  assert.deepEqual(await browser.complaints(), []);
});
