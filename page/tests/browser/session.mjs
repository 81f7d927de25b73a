// The server and the browser that all tests share, started before the first and ended after the last.

import { after, before } from "node:test";
import { learn } from "../../src/arguments.js";
import { fromHash } from "../../src/state.js";
import { Browser, startServer } from "./driver.mjs";

export let server;
export let browser;

before(async () => {
  server = await startServer();
  learn((await (await fetch(new URL("v1/arguments", server.url))).json()).arguments);
  browser = await Browser.open();
  await browser.look();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens the page anew with a permalink. */
export const open = (hash = "") => browser.visit(`${server.url}#${hash}`);

/** The state that the permalink has; the page writes it a moment after a change. */
export async function state() {
  await browser.driver.sleep(300);
  return fromHash(new URL(await browser.driver.getCurrentUrl()).hash).state;
}

/** The exact value of a figure of the page. */
export const figure = (key) => browser.run((name) => document.querySelector(`[data-figure="${name}"]`)?.value, key);

/** The faults that the page shows above the figures. */
export const problems = () => browser.run(() => document.getElementById("problems").innerText);

/** The fault at a field. */
export const faultAt = (field) => browser.run((name) => document.querySelector(`[data-field="${name}"] .fault`)?.innerText ?? "", field);

/** The text that a button of a view copies. */
export async function copied(view, kind) {
  await browser.run(
    (selector) => {
      window.copied = "";
      navigator.clipboard.writeText = async (text) => {
        window.copied = text;
      };
      document.querySelector(selector).click();
    },
    `[data-export="${view}"] [data-kind="${kind}"]`,
  );
  await browser.until(() => window.copied, "the copied text");
  return browser.run(() => window.copied);
}
