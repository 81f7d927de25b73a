// The view of a served load: latencies that its clients see, the queue over time, and whether the server keeps up.

import { sent } from "../cards.js";
import { Frame } from "../charts/frame.js";
import { quantileChart, timelineCharts } from "../charts/series.js";
import { $, figure, h } from "../dom.js";
import { millis, number, percent, whole } from "../format.js";
import { SortableTable } from "../table.js";
import { loadState } from "../rows.js";
import { POINTS } from "../state.js";
import { figures, TTFT_TAIL_REMARK, warnings } from "./parts.js";

const METRICS = [
  ["ttft", "TTFT", "time to the first token"],
  ["itl", "ITL", "gap between two tokens"],
  ["tpot", "TPOT", "mean gap of a request"],
  ["e2e", "E2E", "from sending to the last token"],
];

/** The stage that is the whole run. */
export function wholeRun(answer) {
  return answer.stages.find(({ stage }) => stage === -1) ?? answer.stages[0];
}

const remarks = (answer) => [...(answer.warnings ?? []), ...(answer.notes ?? [])];

/** The warning of a server that does not keep up, if there is one. */
function warningOf(answer) {
  return remarks(answer).find((text) => /does not keep up|at its limit/.test(text));
}

/** Whether the server keeps up with the load: "keeps_up", "at_limit" or "overloaded". */
export function stateOf(answer) {
  return loadState({ load_state: answer.load_state, keeps_up: !warningOf(answer) });
}

const STATES = {
  overloaded: ["Overloaded. ", "The server does not keep up: its queue and latencies grow for as long as the load lasts."],
  at_limit: ["At its limit. ", "Latencies depend on the length of the load."],
};

export class LoadView {
  constructor() {
    this.quantiles = new Frame($("quantiles"));
    this.timeline = new Frame($("timeline"));
    const cell = (key) => (row) => figure(row[key], millis(row[key]));
    this.table = new SortableTable($("load-table"), {
      caption: "Latencies in milliseconds or seconds, as clients see them, over all requests.",
      columns: [
        { key: "name", label: "latency", value: (row) => row.order, cell: (row) => h("abbr", { title: row.about }, row.name) },
        ...POINTS.map((key) => ({ key, label: key, numeric: true, value: (row) => row[key], cell: cell(key) })),
        {
          key: "interval",
          label: "90 % interval of the mean",
          numeric: true,
          value: (row) => row.lower,
          cell: (row) => (row.lower ? `${millis(row.lower)} to ${millis(row.upper)}` : "–"),
        },
        { key: "max", label: "max", numeric: true, value: (row) => row.max, cell: cell("max") },
      ],
    });
  }

  show(answer, { limits, state }) {
    const run = wholeRun(answer);
    const load = stateOf(answer);
    const late = warningOf(answer);
    const [name, usual] = STATES[load] ?? [];
    $("overload").replaceChildren(
      name ? h("div", { class: "overload", "data-load": load }, h("strong", {}, name), late ? sentence(late) : usual) : "",
    );
    $("load-lead").replaceChildren(lead(run, load, state));
    $("load-figures").replaceChildren(...figures(loadFigures(run, answer.counters)));
    const notes = remarks(answer).filter((text) => text !== late);
    const tail = notes.some((text) => /TTFT p99/.test(text)) || !run.ttft_ms ? [] : [TTFT_TAIL_REMARK];
    $("load-warnings").replaceChildren(warnings([...tail, ...notes]));
    this.rows = METRICS.filter(([key]) => run[`${key}_ms`]).map(([key, name, about], order) => {
      const times = run[`${key}_ms`];
      const { mean, max } = times;
      const factors = answer.intervals?.[key];
      return {
        order,
        name,
        about,
        ...Object.fromEntries(POINTS.map((point) => [point, times[point]])),
        max,
        lower: factors ? mean * factors.lower_factor : null,
        upper: factors ? mean * factors.upper_factor : null,
      };
    });
    this.table.show(this.rows);
    this.#curves(answer, limits);
  }

  #curves({ series }, limits) {
    if (!series) return;
    this.quantiles.show((width) => {
      const columns = width >= 760 ? 2 : 1;
      const each = Math.floor((width - (columns - 1) * 28) / columns);
      return METRICS.filter(([key]) => series[`${key}_ms`]?.length > 1).map(([key, name]) =>
        quantileChart({
          name,
          quantiles: series[`${key}_ms`],
          limits: POINTS.map((point) => ({ point, ms: limits[`${key}_${point}_ms`] })).filter(({ ms }) => Number.isFinite(ms)),
          width: each,
        }),
      );
    });
    if (series.timeline?.length > 1) this.timeline.show((width) => timelineCharts({ timeline: series.timeline, width }));
    else this.timeline.clear();
  }
}

/** What a load comes to, in words. */
function lead({ finished, rejected, requests, ttft_ms, itl_ms }, load, state) {
  const refused = rejected > 0 ? h("strong", {}, `${whole(rejected)} requests were refused: they are longer than max_model_len. `) : "";
  if (!ttft_ms || finished === 0) return h("p", {}, refused, "No request finished.");
  return h(
    "p",
    {},
    refused,
    `${whole(requests)} requests of ${whole(Number(state.input_len))} prompt and ${whole(Number(state.output_len))} output tokens, ${
      state.load === "rate" ? `sent at ${sent(state)}` : sent(state)
    }. `,
    load !== "keeps_up"
      ? "The latencies are those of this number of requests; a longer load has longer ones. "
      : state.load === "rate"
        ? "The server keeps up. "
        : "",
    "Half of the requests get their first token within ",
    h("strong", {}, millis(ttft_ms.p50)),
    " and 99 % of them within ",
    h("strong", {}, millis(ttft_ms.p99)),
    itl_ms ? `; further tokens come every ${millis(itl_ms.mean)} on average.` : ".",
  );
}

function loadFigures(run, counters) {
  const { ttft_ms: ttft, itl_ms: itl } = run;
  const list = [
    ["requests_per_s", "Requests/s", run.requests_per_s, number, `${whole(run.finished)} finished`],
    ["ttft_p99", "TTFT p99", ttft?.p99, millis, `median ${millis(ttft?.p50)}`],
    ["itl_p99", "ITL p99", itl?.p99, millis, `median ${millis(itl?.p50)}`],
    ["output_tokens_per_s", "Output tokens/s", run.output_tokens_per_s, whole, `${whole(run.total_tokens_per_s)} with prompts`],
    ["gpu_busy_share", "GPUs busy", counters.gpu_busy_share, percent, `${whole(counters.steps)} steps`],
    ["peak_kv_share", "KV cache at most", counters.peak_kv_share, percent, preemptions(counters.preemptions)],
    ["max_waiting", "Waiting at most", counters.max_waiting, whole, `${whole(counters.max_running)} running at most`],
  ];
  return list.map(([key, term, value, format, note], index) => ({ key, term, value, text: format(value), note, large: index < 3 }));
}

function preemptions(count) {
  if (count === 0) return "no preemption";
  return `${whole(count)} ${count === 1 ? "preemption" : "preemptions"}`;
}

function sentence(text) {
  const trimmed = text.trim();
  return `${trimmed[0].toUpperCase()}${trimmed.slice(1)}${/[.!?]$/.test(trimmed) ? "" : "."}`;
}
