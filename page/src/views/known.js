// The view of what is known: where times come from by model and GPU, and public runs with their predictions.

import { Frame } from "../charts/frame.js";
import { measuredChart } from "../charts/series.js";
import { $, figure, h, setText } from "../dom.js";
import { listed, millis, percent, whole } from "../format.js";
import { SortableTable } from "../table.js";

export const STATUSES = {
  own: { sign: "●", label: "own tables", about: "kernels of this GPU were measured" },
  stand_in: { sign: "◐", label: "fallback", about: "measured kernels of another version, format or shape are used" },
  borrowed: { sign: "○", label: "borrowed", about: "efficiencies of another GPU against this one's peaks" },
  datasheet: { sign: "·", label: "datasheet", about: "the roofline and a launch overhead alone" },
  refused: { sign: "×", label: "refused", about: "the deployment cannot run" },
};

const METRIC_COLOURS = { TTFT: "var(--compute)", ITL: "var(--memory)", TPOT: "var(--network)", E2E: "var(--source-1)" };

function kindOf(metric) {
  return /^[a-z0-9]+/i.exec(metric)?.[0].toUpperCase() ?? metric;
}

/** The engine and minor version of a name such as "vllm-0.15" or "vLLM 0.15.1". */
function release(name) {
  return /^([a-z]+)[- ]v?(\d+\.\d+)?/.exec(`${name ?? ""} `.toLowerCase())?.slice(1).filter(Boolean).join(" ");
}

/** Whether runs of `measured` vouch for `served`: the kernels of vLLM 0.14 are those of 0.15. */
function vouches(measured, served) {
  const [of, by] = [release(measured), release(served)];
  return of === by || (of === "vllm 0.15" && by === "vllm 0.14");
}

/** How well public runs of a model on a GPU under this very engine and version were predicted, in a sentence. */
export function trust({ runs }, model, hardware, engine) {
  const same = runs.filter((run) => run.model === model && run.hardware === hardware && vouches(run.engine, engine));
  if (same.length === 0)
    return "No public run of this model on this GPU under this engine and version is known, so these latencies were not compared with a real server.";
  const errors = new Map();
  for (const { metric, measured_ms, predicted_ms } of same.flatMap(({ metrics }) => metrics)) {
    errors.set(metric, [...(errors.get(metric) ?? []), Math.abs(predicted_ms / measured_ms - 1)]);
  }
  const means = [...errors].filter(([metric]) => metric.endsWith("_mean"));
  const words = means.map(
    ([metric, list]) => `${percent(list.sort((a, b) => a - b)[Math.floor(list.length / 2)], 0)} for the mean ${kindOf(metric)}`,
  );
  const count = same.length === 1 ? "One public run" : `${same.length} public runs`;
  return `${count} of this model on this GPU ${same.length === 1 ? "was" : "were"} predicted by corrections that had not seen the model, with a median error of ${listed(words)}.`;
}

const SOURCES = [
  [/between measured shapes|measured$/, "own"],
  [/similar kernels/, "stand_in"],
  [/another GPU/, "borrowed"],
  [/datasheet/, "datasheet"],
];

/** The source of most of a cell's time, and the share that is from the GPU's own measurements, as its words have them. */
export function mainSource({ status, detail }) {
  const shares = { own: 0, stand_in: 0, borrowed: 0, datasheet: 0 };
  for (const [, share, words] of (detail ?? "").matchAll(/(\d+) % ([^,]+)/g)) {
    const found = SOURCES.find(([pattern]) => pattern.test(words));
    if (found) shares[found[1]] += Number(share) / 100;
  }
  const [most] = Object.entries(shares).sort((a, b) => b[1] - a[1]);
  if (status === "refused" || most[1] === 0) return { status, own: null };
  return { status: most[0], own: shares.own };
}

function capital(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}

/** The number of GPUs that a cell's words speak of: the fewest that hold the weights. */
function gpusOf(detail) {
  const [, found] = /^on (one|\d+) GPU/.exec(detail ?? "") ?? [];
  return found === "one" ? "1" : found;
}

/** Most pixels of height of the heat map. */
const TALL = 544;

/** Makes the box of a table as high as the rows that fit, so that its edge cuts no row. */
function endWithWholeRow(table) {
  const box = table.parentElement;
  const top = table.getBoundingClientRect().top;
  const ends = [...table.tBodies[0].rows].map((row) => row.getBoundingClientRect().bottom - top);
  const last = ends.filter((end) => end <= TALL).at(-1);
  if (last > 0) box.style.maxHeight = `${Math.floor(last) - 1 + box.offsetHeight - box.clientHeight}px`;
}

export class KnownView {
  constructor({ choose }) {
    this.choose = choose;
    this.chart = new Frame($("measured-chart"));
    this.table = new SortableTable($("measured-table"), {
      caption: "Public runs of real servers: measured and predicted.",
      columns: [
        { key: "model", label: "model", value: (row) => row.model, cell: (row) => row.model },
        {
          key: "hardware",
          label: "GPU",
          value: (row) => row.hardware,
          cell: (row) => `${row.tensor_parallel_size ?? 1} × ${row.hardware}`,
        },
        { key: "metric", label: "latency", value: (row) => row.metric, cell: (row) => row.metric.replaceAll("_", " ") },
        {
          key: "measured_ms",
          label: "measured",
          numeric: true,
          value: (row) => row.measured_ms,
          cell: (row) => figure(row.measured_ms, millis(row.measured_ms)),
        },
        {
          key: "predicted_ms",
          label: "predicted",
          numeric: true,
          value: (row) => row.predicted_ms,
          cell: (row) => figure(row.predicted_ms, millis(row.predicted_ms)),
        },
        {
          key: "error",
          label: "error",
          numeric: true,
          value: (row) => Math.abs(row.error),
          cell: (row) => `${row.error > 0 ? "+" : ""}${percent(row.error)}`,
        },
        {
          key: "interval",
          label: "90 % interval",
          numeric: true,
          value: (row) => row.lower_ms,
          cell: (row) => (row.lower_ms ? `${millis(row.lower_ms)} to ${millis(row.upper_ms)}` : "–"),
        },
        { key: "run", label: "run", value: (row) => row.run, cell: (row) => row.run },
      ],
    });
    $("support").addEventListener("keydown", (event) => this.#key(event));
    $("support").addEventListener("focusin", (event) => this.#tell(event.target.closest("td")));
    $("support").addEventListener("click", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      cell.focus();
      this.#tell(cell);
    });
    $("support-legend").replaceChildren(
      ...Object.entries(STATUSES).map(([status, { sign, label, about }]) =>
        h(
          "li",
          {},
          h("span", { class: "cell", "data-status": status, "aria-hidden": "true" }, status === "refused" ? sign : ""),
          h("span", {}, `${label}: ${about}`),
        ),
      ),
    );
  }

  showSupport(support, state) {
    this.support = support;
    this.#draw(state);
  }

  filter(state) {
    if (this.support) this.#draw(state);
  }

  #draw({ filter, model, hardware }) {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = this.support.models
      .map((one, index) => ({ ...one, index }))
      .filter(({ name, family }) => words.every((word) => `${name} ${family ?? ""}`.toLowerCase().includes(word)));
    setText($("filter-count"), `${whole(rows.length)} of ${whole(this.support.models.length)} models`);
    const head = h(
      "tr",
      { role: "row" },
      h("th", { scope: "col", role: "columnheader" }, "model"),
      this.support.hardware.map(({ name, display_name }) =>
        h(
          "th",
          { scope: "col", role: "columnheader", class: name === hardware ? "chosen" : null, title: display_name },
          h("span", {}, name),
        ),
      ),
    );
    const body = rows.map(({ name, index }) =>
      h(
        "tr",
        { role: "row" },
        h("th", { scope: "row", role: "rowheader", class: name === model ? "chosen" : null }, name),
        this.support.hardware.map((gpu, column) => {
          const { status, own } = mainSource(this.support.cells[index][column]);
          const known = STATUSES[status] ?? { sign: "?", label: status };
          const share = own === null ? "" : `, ${percent(own, 0)} of the time from its own measurements`;
          return h(
            "td",
            {
              role: "gridcell",
              tabindex: "-1",
              class: "cell",
              "data-status": status,
              "data-row": index,
              "data-column": column,
              "aria-label": `${name} on ${gpu.name}: ${known.label}${share}`,
            },
            own === null ? known.sign : Math.round(own * 100),
          );
        }),
      ),
    );
    $("support").replaceChildren(
      h("caption", { class: "sr-only" }, "Sources of times by model and GPU. Arrow keys move between cells."),
      h("thead", {}, head),
      h("tbody", {}, body),
    );
    $("support")
      .querySelector(`td[data-row="${this.support.models.findIndex(({ name }) => name === model)}"]`)
      ?.setAttribute("tabindex", "0");
    if (!$("support").querySelector('td[tabindex="0"]')) $("support").querySelector("td")?.setAttribute("tabindex", "0");
    endWithWholeRow($("support"));
  }

  #tell(cell) {
    if (!cell) return;
    const row = Number(cell.dataset.row);
    const column = Number(cell.dataset.column);
    if (this.told === `${row},${column}`) return;
    this.told = `${row},${column}`;
    const model = this.support.models[row];
    const gpu = this.support.hardware[column];
    const { detail } = this.support.cells[row][column];
    const { status } = mainSource(this.support.cells[row][column]);
    const known = STATUSES[status] ?? { label: status };
    $("cell-detail").replaceChildren(
      h("p", {}, h("strong", {}, `${model.name} on ${gpu.display_name}: ${known.label}. `), capital(detail ?? "")),
      h("button", { type: "button", onclick: () => this.choose(model.name, gpu.name, gpusOf(detail)) }, "Predict this model on this GPU"),
    );
  }

  #key(event) {
    const cell = event.target.closest("td");
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      $("cell-detail").querySelector("button")?.focus();
      return;
    }
    const line = cell.parentElement;
    let next = null;
    if (event.key === "Home") next = line.querySelector("td");
    if (event.key === "End") next = [...line.querySelectorAll("td")].at(-1);
    if (steps) {
      const lines = [...line.parentElement.children];
      const to = lines[lines.indexOf(line) + steps[0]];
      next = to?.querySelectorAll("td")[Number(cell.dataset.column) + steps[1]];
    }
    if (!next && !steps) return;
    event.preventDefault();
    if (!next) return;
    for (const old of $("support").querySelectorAll('td[tabindex="0"]')) old.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }

  showMeasured({ source, runs }) {
    this.rows = runs.flatMap(({ name, metrics, ...run }) =>
      metrics.map((metric) => ({
        run: name,
        ...run,
        ...metric,
        kind: kindOf(metric.metric),
        error: metric.predicted_ms / metric.measured_ms - 1,
      })),
    );
    $("measured-figure").hidden = runs.length === 0;
    $("measured-block").hidden = runs.length === 0;
    setText(
      $("measured-source"),
      `${capital(source)} A line is the 90 % interval of a prediction, the grey band 20 % to either side of the measurement.`,
    );
    this.table.show(this.rows);
    const kinds = [...new Set(this.rows.map(({ kind }) => kind))];
    const colours = Object.fromEntries(kinds.map((kind) => [kind, METRIC_COLOURS[kind] ?? "var(--latency)"]));
    if (this.rows.length > 0) this.chart.show((width) => measuredChart({ points: this.rows, width, colours }));
  }
}
