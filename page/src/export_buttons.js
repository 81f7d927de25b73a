// The buttons below charts and tables that let figures leave the page.

import { fieldRows, fileOf, isFile } from "./arguments.js";
import { curl, gridToml, loadCommand, memoryCommand, stepCommand, sweepCommand, toml } from "./commands.js";
import { csv } from "./csv.js";
import { h } from "./dom.js";
import { copy, download, fileName, say, svgText } from "./exports.js";
import { FieldFault, gridBody, ownSweepBody, serverBody, simulateBody, stepBody } from "./state.js";

/** Adds the buttons, once the server's list of arguments is there. */
export function addExports({ app, views, sweep }) {
  const state = () => app.state;
  const origin = () => location.href.replace(/[#?].*$/, "").replace(/\/$/, "");
  const name = (...words) => fileName(state().config ? "own-model" : state().model, state().gpu ? "own-gpu" : state().hardware, ...words);
  const saveCsv = (rows, word) => (rows?.length ? download(`${name(word)}.csv`, csv(rows), "text/csv") : say("There are no figures yet."));
  const saveJson = (object, word) =>
    object ? download(`${name(word)}.json`, `${JSON.stringify(object, null, 2)}\n`, "application/json") : say("There are no figures yet.");

  /** Buttons that every view has: the command, curl, and the files that the command needs. */
  const commands = (command, path, body) => [
    button("Copy command", "command", () => copy(command(state()), "Command")),
    button("Copy curl", "curl", () => copy(curl(origin(), path, body(state())), "curl")),
    button(
      "config.json",
      "config",
      () => download("config.json", `${JSON.stringify(serverBody(state()).model, null, 2)}\n`, "application/json"),
      () => Boolean(state().config),
    ),
    button(
      "gpu.toml",
      "gpu",
      () => download("gpu.toml", toml(serverBody(state()).hardware), "application/toml"),
      () => Boolean(state().gpu),
    ),
    ...fieldRows()
      .filter(isFile)
      .map((row) =>
        button(
          fileOf(row),
          row.name,
          () => download(fileOf(row), `${JSON.stringify(serverBody(state())[row.name], null, 2)}\n`, "application/json"),
          () => Boolean(state()[row.name]),
        ),
      ),
  ];

  const sets = {
    step: [
      button("CSV", "csv", () => saveCsv(app.answers.step?.operators, "step")),
      button("JSON", "json", () => saveJson(app.answers.step, "step")),
      ...commands(stepCommand, "/v1/predict-step", stepBody),
    ],
    load: [
      button("CSV", "csv", () =>
        saveCsv(
          views.load.rows?.map(({ order, about, ...row }) => row),
          "load",
        ),
      ),
      button("Curves CSV", "curves", () => saveCsv(curves(app.answers.load?.series), "curves")),
      button("Timeline CSV", "timeline", () => saveCsv(app.answers.load?.series?.timeline, "timeline")),
      button("JSON", "json", () => saveJson(app.answers.load, "load")),
      ...commands(loadCommand, "/v1/simulate", simulateBody),
    ],
    capacity: [
      button("CSV", "csv", () => saveCsv(sweep.rows.length > 0 ? sweep.rows : app.answers.capacity?.rows, "capacity")),
      button("JSON", "json", () => saveJson(sweep.rows.length > 0 ? { rows: sweep.rows } : app.answers.capacity, "capacity")),
      button("grid.toml", "grid", () => download("grid.toml", gridToml(state()), "application/toml")),
      ...commands(sweepCommand, "/v1/sweep", (of) => (sweep.rows.length > 0 ? gridBody(of) : ownSweepBody(of))),
    ],
    memory: [
      button("CSV", "csv", () =>
        saveCsv(
          views.memory.rows?.map(({ order, ...row }) => row),
          "memory",
        ),
      ),
      button("JSON", "json", () => saveJson(app.answers.memory, "memory")),
      ...commands(memoryCommand, "/v1/kv-capacity", serverBody),
    ],
    known: [
      button("CSV", "csv", () => saveCsv(supportRows(app.answers.known), "support")),
      button("JSON", "json", () => saveJson(app.answers.known, "support")),
    ],
    measured: [
      button("CSV", "csv", () =>
        saveCsv(
          views.known.rows?.map(({ kind, ...row }) => row),
          "measured",
        ),
      ),
      button("JSON", "json", () => saveJson(app.answers.measured, "measured")),
    ],
  };
  for (const place of document.querySelectorAll("[data-export]")) place.append(...sets[place.dataset.export].map((make) => make()));
  for (const place of document.querySelectorAll("[data-svg]")) {
    const id = place.dataset.svg;
    place.append(button("SVG", "svg", () => saveSvgs(id, name(id)))());
  }
  document.addEventListener("shown", refresh);
  refresh();
}

const conditions = [];

function refresh() {
  for (const [element, shown] of conditions) element.hidden = !shown();
}

/** A maker of a button; `shown` says whether the state has use for it. */
function button(label, kind, act, shown) {
  return () => {
    const element = h(
      "button",
      {
        type: "button",
        "data-kind": kind,
        onclick: () => {
          try {
            act();
          } catch (error) {
            if (!(error instanceof FieldFault)) throw error;
            say(error.message);
          }
        },
      },
      label,
    );
    if (shown) conditions.push([element, shown]);
    return element;
  };
}

/** Saves the chart of a figure; several panels become one file. */
function saveSvgs(id, name) {
  const charts = [...document.querySelectorAll(`#${id} > svg`)];
  if (charts.length === 0) {
    say("There is no chart yet.");
    return;
  }
  const title = document.getElementById(id).closest("figure").querySelector("h2").textContent;
  if (charts.length === 1) {
    download(`${name}.svg`, svgText(charts[0], title), "image/svg+xml");
    return;
  }
  const box = document.getElementById(id).getBoundingClientRect();
  const parts = charts.map((chart) => {
    const { x, y } = chart.getBoundingClientRect();
    const inner = svgText(chart, title).replace(/^<\?xml.*\n/, "");
    return inner.replace("<svg", `<svg x="${Math.round(x - box.x)}" y="${Math.round(y - box.y)}"`);
  });
  const [width, height] = [Math.round(box.width), Math.round(box.height)];
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`;
  const back = `<rect width="100%" height="100%" fill="${getComputedStyle(document.body).backgroundColor}"/>`;
  download(`${name}.svg`, `<?xml version="1.0" encoding="UTF-8"?>\n${head}\n${back}\n${parts.join("")}</svg>\n`, "image/svg+xml");
}

function curves(series) {
  if (!series) return [];
  return Array.from({ length: 101 }, (_, percent) => ({
    percent,
    ttft_ms: series.ttft_ms?.[percent],
    itl_ms: series.itl_ms?.[percent],
    tpot_ms: series.tpot_ms?.[percent],
    e2e_ms: series.e2e_ms?.[percent],
  }));
}

function supportRows(support) {
  if (!support) return [];
  return support.models.flatMap(({ name: model }, row) =>
    support.hardware.map(({ name: hardware }, column) => ({ model, hardware, ...support.cells[row][column] })),
  );
}
