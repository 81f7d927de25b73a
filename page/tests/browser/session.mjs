// The server and the browser that all tests share, started before the first and ended after the last.

import { after, before } from "node:test";
import { Browser, startServer } from "./driver.mjs";

export let server;
export let browser;

before(async () => {
  server = await startServer();
  browser = await Browser.open();
  await browser.look();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens the page anew with a permalink. */
export const open = (hash = "") => browser.visit(`${server.url}#${hash}`);
