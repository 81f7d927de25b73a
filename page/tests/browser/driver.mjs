// What the tests of the page share: the server, the browser, downloads and screenshots.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Builder, logging } from "selenium-webdriver";
import chrome from "selenium-webdriver/chrome.js";

export const repository = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const binary = path.resolve(repository, process.env.RIDGEPOINT_BIN ?? "target/release/ridgepoint");
const shots = path.resolve(repository, process.env.RIDGEPOINT_PAGE_SHOTS ?? "target/page");
mkdirSync(shots, { recursive: true });

/** Starts `ridgepoint serve` at a free port. With RIDGEPOINT_URL, a server that runs already is taken. */
export async function startServer(token) {
  if (process.env.RIDGEPOINT_URL) return { url: process.env.RIDGEPOINT_URL, stop: async () => {} };
  const child = spawn(binary, ["serve", "--port", "0"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: token ? { ...process.env, RIDGEPOINT_TOKEN: token } : process.env,
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const url = await new Promise((resolve, reject) => {
    let text = "";
    const read = (chunk) => {
      text += chunk;
      const found = /http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]):\d+/.exec(text);
      if (found) resolve(`${found[0]}/`);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    exited.then((code) => reject(new Error(`the server ended with ${code}: ${text}`)));
    setTimeout(() => reject(new Error(`the server names no address: ${text}`)), 20_000).unref();
  });
  return {
    url,
    stop: async () => {
      child.kill("SIGTERM");
      const late = setTimeout(() => child.kill("SIGKILL"), 5_000);
      await exited;
      clearTimeout(late);
    },
  };
}

/** Runs the command as a shell would, and returns its stdout. */
export function command(line, cwd = repository) {
  const folder = path.dirname(binary);
  const { status, stdout, stderr } = spawnSync("bash", ["-c", line], {
    cwd,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    env: { ...process.env, PATH: `${folder}:${process.env.PATH}` },
  });
  if (status !== 0) throw new Error(`${line}: ${stderr}`);
  return stdout;
}

/** A headless browser with what the tests do with it. */
export class Browser {
  static async open() {
    const options = new chrome.Options();
    if (process.env.CHROMIUM) options.setChromeBinaryPath(process.env.CHROMIUM);
    options.addArguments(
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--hide-scrollbars",
      "--window-size=1360,900",
    );
    const preferences = new logging.Preferences();
    preferences.setLevel(logging.Type.BROWSER, logging.Level.ALL);
    options.setLoggingPrefs(preferences);
    const service = new chrome.ServiceBuilder(process.env.CHROMEDRIVER ?? "/usr/bin/chromedriver");
    const self = new Browser();
    self.driver = await new Builder().forBrowser("chrome").setChromeOptions(options).setChromeService(service).build();
    self.downloads = mkdtempSync(path.join(os.tmpdir(), "ridgepoint-page-"));
    await self.cdp("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: self.downloads });
    return self;
  }

  cdp(method, parameters) {
    return this.driver.sendDevToolsCommand(method, parameters);
  }

  /** Runs a function in the page. */
  run(code, ...args) {
    return this.driver.executeScript(`return (${code})(...arguments)`, ...args);
  }

  /** Sets the size of the window, and the theme of the system. */
  async look({ width = 1360, height = 900, theme = "light" } = {}) {
    await this.cdp("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await this.cdp("Emulation.setEmulatedMedia", {
      features: [
        { name: "prefers-color-scheme", value: theme },
        { name: "prefers-reduced-motion", value: "reduce" },
      ],
    });
  }

  /** Opens a permalink anew and waits for the first answer. */
  async visit(url) {
    await this.driver.get("about:blank");
    await this.driver.get(url);
    await this.until(
      () => performance.getEntriesByName("first-answer").length > 0 || document.getElementById("problems")?.hidden === false,
      "a first answer",
    );
  }

  /** Waits until a function of the page holds. */
  async until(code, what, ...args) {
    const started = Date.now();
    while (!(await this.run(code, ...args))) {
      if (Date.now() - started > 45_000) throw new Error(`${what} did not come within 45 s`);
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }

  /** Waits until no request is under way or about to be. */
  async settled() {
    await this.until(() => document.documentElement.dataset.working === "", "the last answer");
  }

  /** Sets a field as typing would. */
  async type(id, text) {
    await this.run(
      (field, value) => {
        const input = document.getElementById(field);
        for (let fold = input.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
        input.focus();
        input.value = value;
        input.dispatchEvent(new Event("input", { bubbles: true }));
        input.blur();
      },
      id,
      text,
    );
  }

  /** Presses a button of a view and returns the file that it saves. */
  async saved(selector) {
    const before = new Set(readdirSync(this.downloads));
    await this.run((css) => document.querySelector(css).click(), selector);
    for (let tries = 0; tries < 200; tries += 1) {
      const found = readdirSync(this.downloads).find((name) => !before.has(name) && !/\.crdownload$|^\.|\.tmp$/.test(name));
      if (found) {
        const file = path.join(this.downloads, found);
        const text = readFileSync(file, "utf8");
        if (text !== "") {
          rmSync(file);
          return { name: found, text };
        }
      }
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    throw new Error(`${selector} saves no file`);
  }

  /** Keeps a picture of the whole page. */
  async shot(name) {
    const [width, height] = await this.run(() => [innerWidth, document.documentElement.scrollHeight]);
    const { data } = await this.driver.sendAndGetDevToolsCommand("Page.captureScreenshot", {
      captureBeyondViewport: true,
      clip: { x: 0, y: 0, width, height: Math.min(height, 8000), scale: 1 },
    });
    writeFileSync(path.join(shots, `${name}.png`), Buffer.from(data, "base64"));
  }

  /** Errors that the console had since the last call. */
  async complaints() {
    const entries = await this.driver.manage().logs().get(logging.Type.BROWSER);
    return entries.filter(({ level }) => level.value >= logging.Level.WARNING.value).map(({ message }) => message);
  }

  async close() {
    await this.driver.quit();
    rmSync(this.downloads, { recursive: true, force: true });
  }
}

/** The middle of a list of numbers. */
export function median(list) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
