// Curves: quantiles of latencies, queues over time, requests that fit a context, measured against predicted.

import { areaY, axisX, axisY, dot, gridX, gridY, line, link, ruleX, ruleY, text } from "@observablehq/plot";
import { axisName, draw, legend, legendLines } from "./frame.js";
import { millis, tick, whole } from "../format.js";

/** Pixels of height within which two labels touch. */
const TOUCHING = 16;

/**
 * Where the labels of quantiles stand: the curve only rises, so that above a dot to the left and below it to the right there is room.
 * That of p90 goes below if it would touch that of p99. `y(ms)` gives the height of a time in pixels.
 */
export function quantileLabels(marked, y) {
  const above = { dx: -4, dy: -9, textAnchor: "end" };
  const below = { dx: 2, dy: 14, textAnchor: "start" };
  return marked.map((one, index) => {
    const next = marked[index + 1];
    return index > 0 && next && y(next.ms) - y(one.ms) < TOUCHING ? below : above;
  });
}

/** The quantile curve of one latency: quantiles at 0, 1, …, 100 %. */
export function quantileChart({ name, quantiles, limits = [], width }) {
  const points = quantiles.map((ms, percent) => ({ ms, percent }));
  const marked = [50, 90, 99].map((percent) => points[percent]).filter(Boolean);
  const most = Math.max(...quantiles, ...limits.map(({ ms }) => ms));
  const height = 210;
  const top = most * 1.06 || 1;
  const labels = quantileLabels(marked, (ms) => (ms / top) * (height - 64));
  return draw(`${name}: quantile curve. The table has its figures.`, {
    width,
    height,
    marginLeft: 52,
    marginRight: 16,
    marginTop: 30,
    marginBottom: 34,
    x: { domain: [0, 100], label: null },
    y: { domain: [0, top], label: null },
    marks: [
      gridY({ ticks: 4, stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({
        ticks: [0, 50, 90, 99],
        tickFormat: (d) => (d === 0 ? "0 %" : `p${d}`),
        tickSize: 4,
        label: null,
        textAnchor: "middle",
        tickRotate: 0,
        filter: (d) => width > 220 || d !== 99,
      }),
      axisY({ ticks: 4, tickFormat: (d) => (d === 0 ? "0" : millis(d, 2)), tickSize: 0, label: null }),
      areaY(points, { x: "percent", y: "ms", fill: "var(--memory)", fillOpacity: 0.12 }),
      line(points, { x: "percent", y: "ms", stroke: "var(--memory)", strokeWidth: 1.8 }),
      ruleY(limits, { y: "ms", stroke: "var(--compute)", strokeDasharray: "4 3" }),
      text(limits, {
        y: "ms",
        frameAnchor: "left",
        dx: 4,
        dy: -7,
        text: ({ point }) => `limit of ${point}`,
        textAnchor: "start",
        fill: "currentColor",
      }),
      dot(marked, { x: "percent", y: "ms", r: 3, fill: "var(--memory)" }),
      marked.map((one, index) =>
        text([one], {
          x: "percent",
          y: "ms",
          text: (d) => millis(d.ms),
          ...labels[index],
          fill: "currentColor",
          stroke: "var(--paper)",
          strokeWidth: 3,
        }),
      ),
      text([name], {
        frameAnchor: "top-left",
        dx: -48,
        dy: -24,
        text: (d) => d,
        fontWeight: 600,
        fill: "currentColor",
        textAnchor: "start",
      }),
    ],
  });
}

/** Requests that run and wait, and below them the share of the KV cache in use. */
export function timelineCharts({ timeline, width }) {
  const entries = [
    { label: "running", colour: "var(--memory)" },
    { label: "waiting", colour: "var(--compute)" },
  ];
  const most = Math.max(1, ...timeline.map(({ running, waiting }) => Math.max(running, waiting)));
  const end = Math.max(...timeline.map(({ t_s }) => t_s), 1e-9);
  const frame = { width, marginLeft: 46, marginRight: 12, x: { domain: [0, end], label: null } };
  const queue = draw("Requests that run and that wait over time.", {
    ...frame,
    height: 220,
    marginTop: legendLines(entries, width) * 17 + 10,
    marginBottom: 24,
    y: { domain: [0, most * 1.05], label: null },
    marks: [
      gridY({ ticks: 4, stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({ ticks: Math.max(3, Math.floor(width / 110)), tickFormat: (d) => `${tick(d)} s`, tickSize: 4, label: null }),
      axisY({ ticks: 4, tickFormat: whole, tickSize: 0, label: null }),
      areaY(timeline, { x: "t_s", y: "waiting", fill: "var(--compute)", fillOpacity: 0.16, curve: "step-after" }),
      line(timeline, { x: "t_s", y: "waiting", stroke: "var(--compute)", strokeWidth: 1.4, curve: "step-after" }),
      line(timeline, { x: "t_s", y: "running", stroke: "var(--memory)", strokeWidth: 1.6, curve: "step-after" }),
    ],
  });
  legend(queue, entries, { width });
  const cache = draw("Share of the KV cache in use over time.", {
    ...frame,
    height: 130,
    marginTop: 26,
    marginBottom: 24,
    y: { domain: [0, 1], label: null },
    marks: [
      gridY({ ticks: [0, 0.5, 1], stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({ ticks: Math.max(3, Math.floor(width / 110)), tickFormat: (d) => `${tick(d)} s`, tickSize: 4, label: null }),
      axisY({ ticks: [0, 0.5, 1], tickFormat: (d) => `${d * 100} %`, tickSize: 0, label: null }),
      areaY(timeline, { x: "t_s", y: "kv_used", fill: "var(--source-2)", fillOpacity: 0.35, curve: "step-after" }),
      line(timeline, { x: "t_s", y: "kv_used", stroke: "var(--source-1)", strokeWidth: 1.4, curve: "step-after" }),
      text(["KV cache in use"], {
        frameAnchor: "top-left",
        dx: -42,
        dy: -20,
        text: (d) => d,
        fontWeight: 600,
        fill: "currentColor",
        textAnchor: "start",
      }),
    ],
  });
  return [queue, cache];
}

const powers = (from, to, base) => {
  const ticks = [];
  for (let value = from; value <= to; value *= base) ticks.push(value);
  return ticks;
};

/** How many requests of a context fit the KV cache, with the chosen context marked. */
export function fitChart({ fits, chosen, width }) {
  const x = [fits[0].context, fits.at(-1).context];
  const y = [
    Math.max(0.8, Math.min(...fits.map(({ requests }) => Math.max(1, requests))) * 0.7),
    Math.max(...fits.map(({ requests }) => requests), 2) * 1.5,
  ];
  const tens = powers(1, y[1], 10).filter((value) => value >= y[0]);
  const shown = fits.filter(({ requests }) => requests > 0);
  return draw("Requests that fit by context.", {
    width,
    height: 260,
    marginLeft: 52,
    marginRight: 20,
    marginTop: 26,
    marginBottom: 40,
    x: { type: "log", base: 2, domain: x, label: null },
    y: { type: "log", domain: y, label: null },
    marks: [
      gridX({ ticks: powers(x[0], x[1], 4), stroke: "var(--rule)", strokeOpacity: 1 }),
      gridY({ ticks: tens, stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({
        ticks: powers(x[0], x[1], width < 500 ? 16 : 4),
        tickFormat: whole,
        tickSize: 0,
        label: "tokens of context",
        labelAnchor: "center",
        labelArrow: "none",
      }),
      axisY({ ticks: tens, tickFormat: whole, tickSize: 0, label: null }),
      axisName("requests", 52),
      line(shown, { x: "context", y: "requests", stroke: "var(--memory)", strokeWidth: 1.8 }),
      chosen.requests > 0
        ? [
            ruleX([chosen.context], { stroke: "var(--ink-2)", strokeDasharray: "3 3" }),
            dot([chosen], { x: "context", y: "requests", r: 5, fill: "var(--ink)" }),
          ]
        : null,
      chosen.requests > 0
        ? text([chosen], {
            x: "context",
            y: "requests",
            dx: chosen.context > x[1] / 4 ? -10 : 10,
            dy: chosen.context > x[1] / 4 ? 12 : -10,
            text: (d) => `${whole(d.requests)} of ${whole(d.context)} tokens`,
            textAnchor: chosen.context > x[1] / 4 ? "end" : "start",
            fontWeight: 600,
            fill: "currentColor",
            stroke: "var(--paper)",
            strokeWidth: 4,
          })
        : null,
    ],
  });
}

/** Measured against predicted latencies of public runs. */
export function measuredChart({ points, width, colours }) {
  const values = points.flatMap(({ measured_ms, predicted_ms }) => [measured_ms, predicted_ms]).filter((value) => value > 0);
  const domain = [Math.min(...values) * 0.7, Math.max(...values) * 1.5];
  const side = Math.min(width, 640);
  const entries = Object.entries(colours).map(([label, colour]) => ({ label, colour }));
  const head = legendLines(entries, side) * 17 + 26;
  const time = (value) => millis(value, 1);
  const ticks = powers(10 ** Math.ceil(Math.log10(domain[0])), domain[1], 10);
  const along = (factor) => [domain[0], domain[1]].map((x) => ({ x, y: x * factor }));
  const svg = draw("Predicted against measured latencies of public runs. The table has the figures.", {
    width: side,
    height: Math.min(side, 520) + head - 40,
    marginLeft: 58,
    marginRight: 14,
    marginTop: head,
    marginBottom: 42,
    x: { type: "log", domain, label: null },
    y: { type: "log", domain, label: null },
    color: { type: "identity" },
    marks: [
      gridX({ ticks, stroke: "var(--rule)", strokeOpacity: 1 }),
      gridY({ ticks, stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({ ticks, tickFormat: time, tickSize: 0, label: "measured", labelAnchor: "center", labelArrow: "none" }),
      axisY({ ticks, tickFormat: time, tickSize: 0, label: null }),
      axisName("predicted", 58),
      areaY([domain[0], domain[1]], {
        x: (d) => d,
        y1: (d) => d * 0.8,
        y2: (d) => d * 1.25,
        fill: "var(--ink)",
        fillOpacity: 0.06,
        clip: true,
      }),
      line(along(1), { x: "x", y: "y", stroke: "var(--ink)", strokeWidth: 1.2, clip: true }),
      link(
        points.filter(({ lower_ms, upper_ms }) => lower_ms > 0 && upper_ms > 0),
        {
          x1: "measured_ms",
          x2: "measured_ms",
          y1: "lower_ms",
          y2: "upper_ms",
          stroke: (d) => colours[d.kind] ?? "var(--ink-2)",
          strokeWidth: 1,
          strokeOpacity: 0.6,
        },
      ),
      dot(points, {
        x: "measured_ms",
        y: "predicted_ms",
        r: 4,
        fill: (d) => colours[d.kind] ?? "var(--ink-2)",
        fillOpacity: 0.8,
        stroke: "var(--paper)",
        strokeWidth: 0.8,
        title: (d) => `${d.run}\n${d.metric}: measured ${millis(d.measured_ms)}, predicted ${millis(d.predicted_ms)}`,
      }),
    ],
  });
  legend(svg, entries, { width: side });
  return svg;
}
