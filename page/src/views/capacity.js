// The view of capacity: the highest rate of the chosen server within limits, and of each server of a grid.

import { Frame } from "../charts/frame.js";
import { rowChart } from "../charts/rows.js";
import { $, figure, h, setText } from "../dom.js";
import { listed, millis, number, percent, tick, whole } from "../format.js";
import { binding, binds, breaks, holds, limitName, ranked, serverName, unsteady, withChosen } from "../rows.js";
import { SortableTable } from "../table.js";
import { TTFT_TAIL_REMARK } from "./parts.js";

const COLOURS = { TTFT: "var(--compute)", ITL: "var(--memory)", TPOT: "var(--network)", E2E: "var(--source-1)" };

/** The colour of a limit: that of its latency. */
function colourOf(limit) {
  return COLOURS[limit.split(" ")[0]] ?? "var(--latency)";
}

const UNLIMITED = "a queue does not lengthen the gaps between tokens, so set a limit on TTFT or E2E too";

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
  const unsteadily = unsteady(row);
  if (unsteadily) {
    return [h("p", {}, h("strong", {}, unsteadily), `. With ${within}, for ${load}, this is no rate that it sustains.`)];
  }
  const margin = Number.isFinite(row.margin_pct) ? ` The smallest margin to a limit is ${percent(row.margin_pct / 100)}.` : "";
  return [
    h(
      "p",
      {},
      "It holds ",
      h("strong", {}, figure(row.request_rate_per_s, number(row.request_rate_per_s), { "data-figure": "own_rate" }), " requests a second"),
      ` (${number(row.request_rate_per_s_per_gpu)} per GPU) with ${within}, for ${load}, over ${whole(row.num_requests)} requests. At ${number(row.fails_at_rate_per_s)}, ${breaks(row)}.${margin}`,
    ),
  ];
}

/** Why a server cannot run, or its warnings, which are long and stay folded. They have a line of their own below the row. */
function remarks(row) {
  if (row.reason) return h("span", { class: "remark" }, row.reason);
  const list = [unsteady(row), ...(row.warnings ?? "").split("; ")].filter(Boolean);
  if (list.length === 0) return null;
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

/** ", over 20,000 requests": how long the loads were over which rates hold. */
function over(rows) {
  const requests = rows.map(({ num_requests }) => num_requests).filter(Number.isFinite);
  if (requests.length === 0) return "";
  const ends = [...new Set([Math.min(...requests), Math.max(...requests)])];
  return `, over ${ends.map(whole).join(" to ")} requests`;
}

export class CapacityView {
  rows = [];

  constructor() {
    this.chart = new Frame($("sweep-chart"));
  }

  #makeTable(limits) {
    const ms = (key) => ({
      key,
      label: limitName(key),
      numeric: true,
      value: (row) => row[key],
      cell: (row) => (Number.isFinite(row[key]) ? millis(row[key]) : "–"),
    });
    const rate = (key) => ({
      value: (row) => (holds(row) ? row[key] : -1),
      cell: (row) => (row.status === "ok" ? figure(row[key], number(row[key])) : "–"),
    });
    return new SortableTable($("sweep-table"), {
      caption: "",
      columns: [
        {
          key: "server",
          label: "server",
          value: serverName,
          cell: (row) => [serverName(row), row.chosen ? h("strong", {}, " (the chosen one)") : ""],
        },
        { key: "per_gpu", label: "requests/s per GPU", numeric: true, ...rate("request_rate_per_s_per_gpu") },
        { key: "rate", label: "requests/s", numeric: true, ...rate("request_rate_per_s") },
        { key: "binds", label: "what binds", value: binds, cell: binds },
        ...limits.map(ms),
        {
          key: "tokens",
          label: "output tokens/s per GPU",
          numeric: true,
          value: (row) => row.output_tokens_per_s_per_gpu,
          cell: (row) => whole(row.output_tokens_per_s_per_gpu),
        },
      ],
      detail: remarks,
    });
  }

  showOwn(row, { limits, state }) {
    this.own = row;
    $("own-lead").replaceChildren(...lead(row, limits, state));
    $("tail-remark").textContent = "ttft_p99_ms" in limits ? TTFT_TAIL_REMARK : "";
  }

  /** Shows the rows that are there so far and the chosen server's, the best first. `limits` begins a new sweep with these limits. */
  showGrid(rows, limits) {
    if (limits) this.table = this.#makeTable(limits);
    this.rows = ranked(withChosen(rows, this.own));
    setText(this.table.caption, `Servers of the grid and the highest rate that each holds within the limits${over(this.rows)}.`);
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
                : "No server of the grid holds the limits at a rate that stands. The table says why.",
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
    const kinds = [...new Set(held.map(binding))];
    this.chart.show((width) =>
      rowChart({
        label: "Highest rate per GPU of each server. The table has the figures.",
        width,
        format: (value) => `${tick(value, 2)}/s`,
        entries: kinds.map((kind) => ({
          label: `${kind} binds`,
          colour: colourOf(kind),
        })),
        rows: held.slice(0, 24).map((row, index) => ({
          label: `${serverName(row)}${row.chosen ? ", chosen" : ""}`,
          note: number(row.request_rate_per_s_per_gpu),
          strong: index === 0,
          segments: [
            { x1: 0, x2: row.request_rate_per_s_per_gpu, colour: colourOf(binding(row)), key: String(row.configuration) },
          ],
        })),
      }),
    );
  }
}
