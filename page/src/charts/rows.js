// Rows of bars on one axis: a whole, and below it its parts where they lie within it.

import { axisX, link, rect, ruleX, text } from "@observablehq/plot";
import { draw, keyed, legend, legendLines } from "./frame.js";

const ROW = 30;
const BAR = 17;
const STRIP = 4;

/**
 * Draws rows `{label, note, strong, segments: [{x1, x2, colour, strip, key, title}], interval: [lower, upper], at}`.
 * `strip` is a second colour below a segment; `key` joins it to other charts.
 */
export function rowChart({ label, rows, width, format, ticks, entries = [], rules = [] }) {
  const narrow = width < 620;
  const longest = Math.max(...rows.map((one) => one.label.length));
  const left = narrow ? 8 : Math.max(120, Math.min(300, longest * 6.4 + 18));
  const right = narrow ? 4 : 128;
  const row = narrow ? ROW + 15 : ROW;
  const head = entries.length > 0 ? legendLines(entries, width) * 17 + 8 : 0;
  const top = head + (rules.length > 0 ? 16 : 2);
  const height = top + rows.length * row + 30;
  const most = Math.max(...rows.flatMap(({ segments, interval }) => [...segments.map(({ x2 }) => x2), ...(interval ?? [])]), 1e-12);
  const base = (index) => top + index * row + (narrow ? 16 : 3);
  const segments = rows.flatMap(({ segments: parts }, index) => parts.map((part) => ({ ...part, y: base(index) })));
  const strips = segments.filter(({ strip }) => strip);
  const said = segments.filter(({ text: word, x1, x2 }) => word && ((x2 - x1) / most) * (width - left - right) > word.length * 6.4 + 8);
  const intervals = rows.flatMap(({ interval, at }, index) => (interval ? [{ interval, at, y: base(index) + BAR / 2 }] : []));
  const named = rows.map((one, index) => ({ ...one, y: base(index) }));
  const heavy = named.filter(({ strong }) => strong);
  const light = named.filter(({ strong }) => !strong);
  const labels = (data, weight) =>
    narrow
      ? text(data, {
          frameAnchor: "left",
          dx: -left,
          y: (d) => d.y - 7,
          text: "label",
          textAnchor: "start",
          fontWeight: weight,
          fill: "currentColor",
        })
      : text(data, {
          frameAnchor: "left",
          dx: -10,
          y: (d) => d.y + BAR / 2,
          text: "label",
          textAnchor: "end",
          fontWeight: weight,
          fill: "currentColor",
        });
  const notes = (data, weight) =>
    text(data, {
      frameAnchor: "right",
      dx: narrow ? 0 : right - 2,
      y: (d) => (narrow ? d.y - 7 : d.y + BAR / 2),
      text: (d) => d.note ?? "",
      textAnchor: "end",
      fontWeight: weight,
      fill: "currentColor",
    });
  const svg = draw(label, {
    width,
    height,
    marginLeft: left,
    marginRight: right,
    marginTop: top,
    marginBottom: 26,
    x: { domain: [0, most * 1.005], range: [left, width - right], label: null },
    y: { type: "identity", axis: null },
    color: { type: "identity" },
    marks: [
      axisX({
        anchor: "bottom",
        ticks: (ticks && width >= 480 ? ticks : null) ?? Math.max(3, Math.floor((width - left - right) / 90)),
        tickFormat: format,
        tickSize: 4,
        label: null,
      }),
      rules.map(({ x, colour }) => ruleX([x], { stroke: colour ?? "currentColor", strokeDasharray: "3 3", strokeWidth: 1 })),
      rect(segments, {
        x1: "x1",
        x2: "x2",
        y1: "y",
        y2: (d) => d.y + BAR,
        fill: "colour",
        className: "segments",
        stroke: "var(--paper)",
        strokeWidth: 0.6,
      }),
      text(said, { x: (d) => (d.x1 + d.x2) / 2, y: (d) => d.y + BAR / 2, text: "text", fill: "var(--paper)", className: "inside" }),
      strips.length > 0
        ? rect(strips, { x1: "x1", x2: "x2", y1: (d) => d.y + BAR + 1, y2: (d) => d.y + BAR + 1 + STRIP, fill: "strip" })
        : null,
      link(intervals, { x1: (d) => d.interval[0], x2: (d) => d.interval[1], y1: "y", y2: "y", stroke: "var(--paper)", strokeWidth: 5 }),
      link(intervals, { x1: (d) => d.interval[0], x2: (d) => d.interval[1], y1: "y", y2: "y", stroke: "currentColor", strokeWidth: 1.4 }),
      link(
        intervals.flatMap((d) => d.interval.map((x) => ({ x, y: d.y }))),
        { x1: "x", x2: "x", y1: (d) => d.y - 5, y2: (d) => d.y + 5, stroke: "currentColor", strokeWidth: 1.4 },
      ),
      labels(heavy, 600),
      labels(light, 400),
      notes(heavy, 600),
      notes(light, 400),
      rules.map(({ x, label: said, anchor }) =>
        text([x], {
          x: (d) => d,
          frameAnchor: "top",
          dy: -14,
          lineAnchor: "top",
          text: () => said,
          textAnchor: anchor ?? "middle",
          fill: "currentColor",
        }),
      ),
    ],
  });
  keyed(svg, "segments", segments, (segment) => segment.key ?? "");
  if (entries.length > 0) legend(svg, entries, { width, y: 12 });
  return svg;
}
