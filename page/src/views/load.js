// The view of a served load: latencies that its clients see, the queue over time, and whether the server keeps up.

import { Frame } from "../charts/frame.js";
import { quantileChart, timelineCharts } from "../charts/series.js";
import { $, figure, h } from "../dom.js";
import { millis, number, percent, whole } from "../format.js";
import { SortableTable } from "../table.js";
import { figures, warnings } from "./parts.js";

export const METRICS = [
  ["ttft", "TTFT", "time to the first token"],
  ["itl", "ITL", "gap between two tokens"],
  ["tpot", "TPOT", "mean gap of a request"],
  ["e2e", "E2E", "from sending to the last token"],
];
const POINTS = ["mean", "p50", "p90", "p99"];

/** The stage that is the whole run. */
export function wholeRun(answer) {
  return answer.stages.find(({ stage }) => stage === -1) ?? answer.stages[0];
}

/** The warning of a server that does not keep up, if there is one. */
export function overload(answer) {
  return [...(answer.warnings ?? []), ...(answer.notes ?? [])].find((text) => /does not keep up/.test(text));
}

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

  show(answer, { limits }) {
    const run = wholeRun(answer);
    const { counters } = answer;
    const late = overload(answer);
    $("overload").replaceChildren(late ? h("div", { class: "overload" }, h("strong", {}, "Overloaded. "), sentence(late)) : "");
    $("load-lead").replaceChildren(
      h(
        "p",
        {},
        late ? "Latencies below are those of this number of requests; a longer load has longer ones. " : "The server keeps up. ",
        "Half of the requests get their first token within ",
        h("strong", {}, millis(run.ttft_ms.p50)),
        " and 99 % within ",
        h("strong", {}, millis(run.ttft_ms.p99)),
        `; further tokens come every ${millis(run.itl_ms.mean)} on average.`,
      ),
    );
    $("load-figures").replaceChildren(
      ...figures([
        {
          key: "requests_per_s",
          term: "Requests/s",
          value: run.requests_per_s,
          text: number(run.requests_per_s),
          note: `${whole(run.finished)} finished`,
          large: true,
        },
        {
          key: "ttft_p99",
          term: "TTFT p99",
          value: run.ttft_ms.p99,
          text: millis(run.ttft_ms.p99),
          note: `median ${millis(run.ttft_ms.p50)}`,
          large: true,
        },
        {
          key: "itl_p99",
          term: "ITL p99",
          value: run.itl_ms.p99,
          text: millis(run.itl_ms.p99),
          note: `median ${millis(run.itl_ms.p50)}`,
          large: true,
        },
        {
          key: "output_tokens_per_s",
          term: "Output tokens/s",
          value: run.output_tokens_per_s,
          text: whole(run.output_tokens_per_s),
          note: `${whole(run.total_tokens_per_s)} with prompts`,
        },
        {
          key: "gpu_busy_share",
          term: "GPUs busy",
          value: counters.gpu_busy_share,
          text: percent(counters.gpu_busy_share),
          note: `${whole(counters.steps)} steps`,
        },
        {
          key: "peak_kv_share",
          term: "KV cache at most",
          value: counters.peak_kv_share,
          text: percent(counters.peak_kv_share),
          note: counters.preemptions > 0 ? `${whole(counters.preemptions)} preemptions` : "no preemption",
        },
        {
          key: "max_waiting",
          term: "Waiting at most",
          value: counters.max_waiting,
          text: whole(counters.max_waiting),
          note: `${whole(counters.max_running)} running at most`,
        },
      ]),
    );
    $("load-warnings").replaceChildren(
      warnings([...(answer.warnings ?? []).filter((text) => text !== late), ...(answer.notes ?? []).filter((text) => text !== late)]),
    );
    this.rows = METRICS.filter(([key]) => run[`${key}_ms`]).map(([key, name, about], order) => {
      const { mean, p50, p90, p99, max } = run[`${key}_ms`];
      const factors = answer.intervals?.[key];
      return {
        order,
        name,
        about,
        mean,
        p50,
        p90,
        p99,
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
        quantileChart({ name, quantiles: series[`${key}_ms`], limit: limits[`${key}_p99_ms`], width: each }),
      );
    });
    if (series.timeline?.length > 1) this.timeline.show((width) => timelineCharts({ timeline: series.timeline, width }));
    else this.timeline.clear();
  }
}

function sentence(text) {
  const trimmed = text.trim();
  return `${trimmed[0].toUpperCase()}${trimmed.slice(1)}${/[.!?]$/.test(trimmed) ? "" : "."}`;
}
