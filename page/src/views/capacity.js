// The view of capacity: the highest rate of the chosen server within limits, and of each server of a grid.

import { Frame } from "../charts/frame.js";
import { rowChart } from "../charts/rows.js";
import { $, figure, h } from "../dom.js";
import { listed, millis, number, tick, whole } from "../format.js";
import { SortableTable } from "../table.js";

const NAMES = { ttft: "TTFT", itl: "ITL", tpot: "TPOT", e2e: "E2E" };

/** "ttft_p99_ms" → "TTFT p99". */
export function limitName(key) {
  const [, metric, point] = /^(\w+?)_(mean|p\d+)_ms$/.exec(key) ?? [null, key, ""];
  return `${NAMES[metric] ?? metric} ${point}`.trim();
}

/** The limits that break first above a row's rate: `{key, value, limit}`. */
export function broken(row) {
  return [...(row.limits_broken ?? "").matchAll(/(\w+) ([\d.]+) > ([\d.]+)/g)].map(([, key, value, limit]) => ({
    key,
    value: Number(value),
    limit: Number(limit),
  }));
}

/** What binds a row, in a few words. */
export function binds(row) {
  if (row.status === "cannot_run") return "cannot run";
  const first = broken(row)[0];
  if (first) return limitName(first.key);
  return row.status === "highest_rate_holds" ? "nothing" : (row.limits_broken ?? "–");
}

const COLOURS = { "TTFT p99": "var(--compute)", "ITL p99": "var(--memory)", "TPOT p99": "var(--network)", "E2E p99": "var(--source-1)" };

/** "4 × h100_sxm, tp 4, 512 tokens" */
export function serverName(row) {
  const parts = [`${row.gpus} × ${row.hardware}`, `tp ${row.tensor_parallel_size}`];
  if (row.pipeline_parallel_size > 1) parts.push(`pp ${row.pipeline_parallel_size}`);
  if (row.data_parallel_size > 1) parts.push(`dp ${row.data_parallel_size}`);
  parts.push(`${whole(row.max_num_batched_tokens)} tokens`);
  return parts.join(", ");
}

function holds(row) {
  return row.status === "ok";
}

const UNLIMITED = "a queue does not lengthen the gaps between tokens, so set a limit on TTFT or E2E too";

/** A row in a few words: `answer` and `note`. */
export function summary(row) {
  if (row.status === "cannot_run") return { answer: "cannot run", note: "memory or layout" };
  if (row.status === "lowest_rate_fails") return { answer: "no rate holds", note: `${binds(row)} breaks` };
  if (row.status === "highest_rate_holds") return { answer: "no limit breaks", note: "limit TTFT or E2E too" };
  return {
    answer: `${number(row.request_rate_per_s)} req/s`,
    note: `${number(row.request_rate_per_s_per_gpu)} per GPU; ${binds(row)} binds`,
  };
}

/** A row in one sentence, as nodes. */
function lead(row, limits, state) {
  const within = listed(Object.entries(limits).map(([key, ms]) => `${limitName(key)} below ${millis(ms)}`));
  const load = `${whole(Number(state.input_len))} prompt and ${whole(Number(state.output_len))} output tokens`;
  if (row.status === "cannot_run") return [h("p", {}, h("strong", {}, "This server cannot run: "), row.reason)];
  if (row.status === "highest_rate_holds") {
    return [h("p", {}, h("strong", {}, "No limit breaks"), ` at any rate, with ${within}: ${UNLIMITED}.`)];
  }
  if (row.status === "lowest_rate_fails") {
    return [
      h(
        "p",
        {},
        h("strong", {}, "No rate holds"),
        ` with ${within}, for ${load}: ${breaks(row)} even at ${number(row.fails_at_rate_per_s)} requests a second.`,
      ),
    ];
  }
  return [
    h(
      "p",
      {},
      "It holds ",
      h("strong", {}, figure(row.request_rate_per_s, number(row.request_rate_per_s), { "data-figure": "own_rate" }), " requests a second"),
      ` (${number(row.request_rate_per_s_per_gpu)} per GPU) with ${within}, for ${load}. At ${number(row.fails_at_rate_per_s)}, ${breaks(row)}.`,
    ),
  ];
}

function breaks(row) {
  const found = broken(row);
  if (found.length === 0) return row.limits_broken ?? "a limit breaks";
  return listed(found.map(({ key, value, limit }) => `${limitName(key)} is ${millis(value)}, above ${millis(limit)}`));
}

/** Why a server cannot run, or its warnings, which are long and stay folded. */
function remarks(row) {
  if (row.reason) return h("span", { class: "remark" }, row.reason);
  const list = (row.warnings ?? "").split("; ").filter(Boolean);
  if (list.length === 0) return "";
  const words = `${list.length} ${list.length === 1 ? "remark" : "remarks"}`;
  return h(
    "details",
    { class: "remark" },
    h("summary", {}, words),
    h(
      "ul",
      {},
      list.map((text) => h("li", {}, text)),
    ),
  );
}

export class CapacityView {
  rows = [];

  constructor() {
    this.chart = new Frame($("sweep-chart"));
    const ms = (key) => ({
      key,
      label: `${limitName(key)}`,
      numeric: true,
      value: (row) => row[key],
      cell: (row) => (row[key] === null ? "–" : millis(row[key])),
    });
    this.table = new SortableTable($("sweep-table"), {
      caption: "Servers of the grid and the highest rate that each holds within the limits.",
      sort: null,
      columns: [
        { key: "server", label: "server", value: serverName, cell: serverName },
        {
          key: "per_gpu",
          label: "requests/s per GPU",
          numeric: true,
          value: (row) => (holds(row) ? row.request_rate_per_s_per_gpu : -1),
          cell: (row) => (holds(row) ? figure(row.request_rate_per_s_per_gpu, number(row.request_rate_per_s_per_gpu)) : "–"),
        },
        {
          key: "rate",
          label: "requests/s",
          numeric: true,
          value: (row) => (holds(row) ? row.request_rate_per_s : -1),
          cell: (row) => (holds(row) ? figure(row.request_rate_per_s, number(row.request_rate_per_s)) : "–"),
        },
        { key: "binds", label: "what binds", value: binds, cell: binds },
        ms("ttft_p99_ms"),
        ms("itl_p99_ms"),
        {
          key: "tokens",
          label: "output tokens/s per GPU",
          numeric: true,
          value: (row) => row.output_tokens_per_s_per_gpu,
          cell: (row) => whole(row.output_tokens_per_s_per_gpu),
        },
        { key: "remarks", label: "remarks", value: (row) => row.reason ?? row.warnings, cell: remarks },
      ],
    });
  }

  showOwn(row, { limits, state }) {
    this.own = row;
    $("own-lead").replaceChildren(...lead(row, limits, state));
  }

  /** Shows the rows that are there so far, the best first. */
  showGrid(rows) {
    this.rows = [...rows].sort((a, b) => (holds(b) ? b.request_rate_per_s_per_gpu : -1) - (holds(a) ? a.request_rate_per_s_per_gpu : -1));
    const held = this.rows.filter(holds);
    $("sweep-figure").hidden = held.length === 0;
    $("sweep-block").hidden = rows.length === 0;
    this.table.show(this.rows);
    if (held.length === 0) {
      $("sweep-lead").replaceChildren(
        rows.length > 0
          ? h(
              "p",
              {},
              rows.some(({ status }) => status === "highest_rate_holds")
                ? `No limit breaks at any rate: ${UNLIMITED}.`
                : "No server of the grid holds the limits at any rate. The table says why.",
            )
          : "",
      );
      return;
    }
    const best = held[0];
    $("sweep-lead").replaceChildren(
      h(
        "p",
        {},
        "The best is ",
        h("strong", {}, serverName(best)),
        `: ${number(best.request_rate_per_s)} requests a second, `,
        h("strong", {}, `${number(best.request_rate_per_s_per_gpu)} per GPU`),
        best.fails_at_rate_per_s ? `. Above it, ${breaks(best)}.` : ".",
      ),
    );
    const kinds = [...new Set(held.map(binds))];
    this.chart.show((width) =>
      rowChart({
        label: "Highest rate per GPU of each server. The table has the figures.",
        width,
        format: (value) => `${tick(value, 2)}/s`,
        entries: kinds.map((kind) => ({
          label: `${kind} binds`,
          colour: COLOURS[kind] ?? "var(--latency)",
        })),
        rows: held.slice(0, 24).map((row, index) => ({
          label: serverName(row),
          note: number(row.request_rate_per_s_per_gpu),
          strong: index === 0,
          segments: [
            { x1: 0, x2: row.request_rate_per_s_per_gpu, colour: COLOURS[binds(row)] ?? "var(--latency)", key: String(row.configuration) },
          ],
        })),
      }),
    );
  }
}
