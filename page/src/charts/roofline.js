// The roofline of a step: each operator's work per byte against the rate that it reaches, below the roofs of the formats in use.

import { axisX, axisY, dot, gridX, gridY, line, link, ruleX, text } from "@observablehq/plot";
import { axisName, BOUNDS, colourOf, draw, keyed, legend, legendLines, write } from "./frame.js";
import { number, scaled } from "../format.js";
import { place } from "./labels.js";

/** The format of a unit that computes weights of a format, by its name in a GPU's peaks. */
function unitOf(format, peaks) {
  const plain = format.replace(/_.*$/, "");
  const unit = { nvfp4: "fp4", mxfp4: "fp4", int4: "bfloat16" }[plain] ?? plain;
  const of16Bits = "bfloat16" in peaks ? "bfloat16" : "float16";
  return unit in peaks ? unit : of16Bits;
}

/** The roofs of a step: peaks that its operators were held against, and those of its weights. */
export function roofs(operators, formats, peaks) {
  const found = new Map();
  for (const format of formats) {
    const unit = unitOf(format, peaks);
    if (peaks[unit] > 0) found.set(peaks[unit], unit);
  }
  for (const { flops, bound_us } of operators) {
    if (!(flops > 0 && bound_us > 0)) continue;
    const peak = (flops / bound_us) * 1e6;
    const known = Object.entries(peaks).filter(([, value]) => Math.abs(value / peak - 1) < 0.01);
    const best = known.find(([unit]) => unit !== "int8" && unit !== "float16") ?? known[0];
    if (best && !found.has(best[1])) found.set(best[1], best[0]);
  }
  return [...found].map(([peak, unit]) => ({ peak, unit })).sort((a, b) => a.peak - b.peak);
}

const decade = (value, round) => 10 ** round(Math.log10(value));
const area = (share) => 3 + 20 * Math.sqrt(Math.max(0, share));

/** Draws the operators that compute, and below them those that only move bytes. */
export function rooflineChart({ answer, hardware, formats, width }) {
  const computing = answer.operators
    .filter(({ flops, time_us }) => flops > 0 && time_us > 0)
    .map(point)
    .sort((a, b) => b.share - a.share);
  const moving = answer.operators
    .filter(({ flops, bytes, time_us }) => !(flops > 0) && bytes > 0 && time_us > 0)
    .map(point)
    .sort((a, b) => b.share - a.share);
  const nodes = [];
  if (computing.length > 0) nodes.push(computeChart(computing, answer, hardware, formats, width));
  if (moving.length > 0) nodes.push(bytesChart(moving, hardware, width));
  return nodes;
}

function point(operator) {
  const { flops, bytes, time_us, bound_us } = operator;
  return {
    ...operator,
    intensity: flops / bytes,
    rate: (flops / time_us) * 1e6,
    best: (flops / bound_us) * 1e6,
    speed: (bytes / time_us) * 1e6,
  };
}

function computeChart(operators, answer, hardware, formats, width) {
  const narrow = width < 620;
  const bandwidth = hardware.hbm_bytes_per_s;
  const tops = roofs(answer.operators, formats, hardware.peaks_dense_flop_per_s);
  const highest = Math.max(...tops.map(({ peak }) => peak), ...operators.map(({ best }) => best));
  const low = Math.min(2, ...operators.map(({ intensity }) => intensity * 0.45));
  const high = Math.max((highest / bandwidth) * 10, ...operators.map(({ intensity }) => intensity * 2.5));
  const x = [low, high];
  const y = [Math.min(...operators.map(({ rate }) => rate), bandwidth * x[0]) * 0.5, highest * 3];
  const whole = { intensity: answer.total_flops / answer.total_bytes, rate: (answer.total_flops / answer.step_time_us) * 1e6 };
  const entries = [...new Set(operators.map(({ bound }) => bound))].map((bound) => ({
    label: `bound by ${BOUNDS[bound]?.label ?? bound}`,
    colour: colourOf(BOUNDS, bound),
  }));
  entries.push({ label: "the whole step", colour: "var(--ink)" });
  const head = legendLines(entries, width) * 17 + 26;
  const box = {
    left: narrow ? 44 : 58,
    right: 14,
    top: head,
    bottom: 46,
    width,
    height: Math.round(head + Math.min(460, Math.max(300, width * 0.5))),
  };
  const sx = (value) =>
    box.left + ((Math.log(value) - Math.log(x[0])) / (Math.log(x[1]) - Math.log(x[0]))) * (width - box.left - box.right);
  const sy = (value) =>
    box.height -
    box.bottom -
    ((Math.log(value) - Math.log(y[0])) / (Math.log(y[1]) - Math.log(y[0]))) * (box.height - box.top - box.bottom);
  const ridge = highest / bandwidth;
  const slope = [
    [x[0], bandwidth * x[0]],
    [ridge, highest],
  ];
  const named = slopeLabel(sx, sy, slope, bandwidth);
  const roofLine = Array.from({ length: 60 }, (_, index) => {
    const at = x[0] * (x[1] / x[0]) ** (index / 59);
    const y0 = sy(Math.min(highest, bandwidth * at));
    return { x0: sx(at) - 2, x1: sx(at) + 2, y0: y0 - 2, y1: y0 + 2 };
  });
  const labels = place(
    operators
      .filter(({ share }) => share >= 0.004)
      .map((one) => ({ ...one, x: sx(one.intensity), y: sy(one.rate), r: area(one.share), text: one.name })),
    box,
    roofLine.concat(
      named.boxes,
      { x0: sx(whole.intensity) - 7, x1: sx(whole.intensity) + 7, y0: sy(whole.rate) - 8, y1: sy(whole.rate) + 8 },
      tops.map(({ peak, unit }) => ({
        x0: width - box.right - `${unit} ${scaled(peak, "FLOP/s")}`.length * 6.4,
        x1: width,
        y0: sy(peak) - 17,
        y1: sy(peak) + 2,
      })),
    ),
  );
  const flat = tops.map(({ peak, unit }) => ({
    peak,
    unit,
    from: peak / bandwidth,
    points: [
      [peak / bandwidth, peak],
      [x[1], peak],
    ],
  }));
  const svg = draw("Roofline chart. The table of operators has its figures.", {
    width,
    height: box.height,
    marginLeft: box.left,
    marginRight: box.right,
    marginTop: box.top,
    marginBottom: box.bottom,
    x: { type: "log", domain: x, label: null },
    y: { type: "log", domain: y, label: null },
    r: { type: "identity" },
    color: { type: "identity" },
    marks: [
      gridX({ ticks: decades(x), stroke: "var(--rule)", strokeOpacity: 1 }),
      gridY({ ticks: decades(y), stroke: "var(--rule)", strokeOpacity: 1 }),
      axisX({
        ticks: decades(x),
        tickFormat: (value) => number(value, 1),
        tickSize: 0,
        label: "FLOP per byte",
        labelAnchor: "center",
        labelArrow: "none",
      }),
      axisY({ ticks: decades(y), tickFormat: (value) => scaled(value, "", 1).trim(), tickSize: 0, label: null }),
      axisName("FLOP/s", box.left),
      line(slope, { stroke: "var(--ink)", strokeWidth: 1.6 }),
      flat.map(({ points }) => line(points, { stroke: "var(--ink)", strokeWidth: 1.6 })),
      flat.map(({ peak, unit }) =>
        text([peak], {
          y: (d) => d,
          frameAnchor: "right",
          dy: -10,
          text: () => `${unit} ${scaled(peak, "FLOP/s")}`,
          textAnchor: "end",
          fill: "currentColor",
          stroke: "var(--paper)",
          strokeWidth: 4,
        }),
      ),
      link(operators, {
        x1: "intensity",
        x2: "intensity",
        y1: "rate",
        y2: "best",
        stroke: (d) => colourOf(BOUNDS, d.bound),
        strokeWidth: 1,
        strokeOpacity: 0.75,
      }),
      dot(operators, {
        x: "intensity",
        y: "rate",
        r: (d) => area(d.share),
        fill: (d) => colourOf(BOUNDS, d.bound),
        fillOpacity: 0.82,
        stroke: "var(--paper)",
        strokeWidth: 1,
        className: "operators",
      }),
      dot([whole], { x: "intensity", y: "rate", r: 6, symbol: "diamond", fill: "var(--ink)", stroke: "var(--paper)" }),
    ],
  });
  write(svg, [...labels, named]);
  keyed(svg, "operators", operators, ({ name }) => name);
  legend(svg, entries, { width });
  return svg;
}

/** The label of the slope, along it and in its middle. */
function slopeLabel(sx, sy, [[x0, y0], [x1, y1]], bandwidth) {
  const [left, top, right, bottom] = [sx(x0), sy(y1), sx(x1), sy(y0)];
  const turn = Math.atan2(bottom - top, right - left);
  const text = `HBM ${scaled(bandwidth, "B/s")}`;
  const share = 0.42;
  const x = left + share * (right - left) - 10 * Math.sin(turn);
  const y = bottom - share * (bottom - top) - 10 * Math.cos(turn);
  const reach = text.length * 3.2;
  const boxes = Array.from({ length: 13 }, (_, index) => {
    const along = ((index - 6) / 6) * reach;
    const at = { x: x + along * Math.cos(turn), y: y - along * Math.sin(turn) };
    return { x0: at.x - 6, x1: at.x + 6, y0: at.y - 6, y1: at.y + 6 };
  });
  return { x, y, dx: 0, dy: 0, anchor: "middle", text, turn: (-turn * 180) / Math.PI, boxes };
}

function decades([from, to]) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(from) - 1e-9); power <= Math.log10(to); power += 1) ticks.push(10 ** power);
  return ticks;
}

/** Ticks at 1, 2 and 5 of each decade where there is room. */
function halves([from, to], width) {
  if (Math.log10(to / from) * 3 * 74 > width) return decades([from, to]);
  return decades([from / 10, to])
    .flatMap((tick) => [tick, tick * 2, tick * 5])
    .filter((tick) => tick >= from && tick <= to);
}

/** Operators without arithmetic have no place over an axis of FLOPs: the bytes a second that they move say how good they are. */
function bytesChart(operators, hardware, width) {
  const narrow = width < 620;
  const roofsOf = [
    {
      at: hardware.hbm_bytes_per_s,
      label: `HBM ${scaled(hardware.hbm_bytes_per_s, "B/s")}`,
      used: operators.some(({ bound }) => bound !== "network"),
    },
    {
      at: hardware.interconnect?.unidirectional_bytes_per_s,
      label: `link ${scaled(hardware.interconnect?.unidirectional_bytes_per_s, "B/s")}`,
      used: operators.some(({ group }) => group === "communication"),
    },
  ].filter(({ at, used }) => used && at > 0);
  const lowest = Math.min(...operators.map(({ speed }) => speed));
  const domain = [decade(lowest * 0.8, Math.floor), hardware.hbm_bytes_per_s * 1.6];
  const box = { left: narrow ? 24 : 58, right: 14, top: 40, bottom: 34, width, height: 150 };
  const sx = (value) =>
    box.left + ((Math.log(value) - Math.log(domain[0])) / (Math.log(domain[1]) - Math.log(domain[0]))) * (width - box.left - box.right);
  const labels = place(
    operators.filter(({ share }) => share >= 0.003).map((one) => ({ ...one, x: sx(one.speed), y: 78, r: area(one.share), text: one.name })),
    box,
    [],
    false,
  );
  const svg = draw("Bytes a second of the operators that do no arithmetic.", {
    width,
    height: box.height,
    marginLeft: box.left,
    marginRight: box.right,
    marginTop: box.top,
    marginBottom: box.bottom,
    x: { type: "log", domain, axis: null },
    y: { type: "identity", axis: null },
    r: { type: "identity" },
    color: { type: "identity" },
    marks: [
      gridX({ ticks: halves(domain, width), stroke: "var(--rule)", strokeOpacity: 1 }),
      text(halves(domain, width), {
        x: (d) => d,
        frameAnchor: "bottom",
        dy: 16,
        text: (value) => scaled(value, "B/s", 1),
        fill: "currentColor",
      }),
      roofsOf.map(({ at }) => ruleX([at], { stroke: "var(--ink)", strokeWidth: 1.6 })),
      roofsOf.map(({ at, label }) =>
        text([at], {
          x: (d) => d,
          frameAnchor: "top",
          dy: -12,
          text: () => label,
          textAnchor: narrow && at === hardware.hbm_bytes_per_s ? "end" : "middle",
          fill: "currentColor",
        }),
      ),
      dot(operators, {
        x: "speed",
        y: () => 78,
        r: (d) => area(d.share),
        fill: (d) => colourOf(BOUNDS, d.bound),
        fillOpacity: 0.82,
        stroke: "var(--paper)",
        strokeWidth: 1,
        className: "operators",
      }),
      text(["Operators without arithmetic: bytes a second"], {
        frameAnchor: "top-left",
        dx: narrow ? -24 : -58,
        dy: -28,
        text: (d) => d,
        fontWeight: 600,
        fill: "currentColor",
        textAnchor: "start",
      }),
    ],
  });
  write(svg, labels);
  keyed(svg, "operators", operators, ({ name }) => name);
  return svg;
}
