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
