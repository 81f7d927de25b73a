// A place for a chart: draws at the width that there is, and anew when that changes.

import { plot, text } from "@observablehq/plot";

/** Colours by what bounds an operator. They are variables of the style sheet, so that a chart follows the theme. */
export const BOUNDS = {
  compute: { label: "compute", colour: "var(--compute)" },
  memory: { label: "memory", colour: "var(--memory)" },
  network: { label: "network", colour: "var(--network)" },
  power: { label: "power", colour: "var(--power)" },
  latency: { label: "latency", colour: "var(--latency)" },
};

/** Colours by where a time comes from, the surest first. */
export const PROVENANCE = {
  measured: { label: "measured", colour: "var(--source-1)" },
  interpolated: { label: "interpolated", colour: "var(--source-2)" },
  clamped: { label: "clamped", colour: "var(--source-3)" },
  borrowed: { label: "borrowed", colour: "var(--source-4)" },
  datasheet: { label: "datasheet", colour: "var(--source-5)" },
  learned: { label: "learned", colour: "var(--source-6)" },
};

/** The colour of a name that may be new to this page. */
export function colourOf(map, name) {
  return map[name]?.colour ?? "var(--ink-2)";
}

/**
 * Binds an element to a function that draws a node for a width in pixels. The width comes from an observer, because asking the element
 * for it would lay out the page anew in the middle of each answer.
 */
export class Frame {
  #draw = null;
  #width = 0;

  constructor(element) {
    this.element = element;
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.abs(contentRect.width - this.#width) <= 1) return;
      this.#width = Math.floor(contentRect.width);
      this.#redraw();
    }).observe(element);
  }

  show(draw) {
    this.#draw = draw;
    this.#redraw();
  }

  clear() {
    this.#draw = null;
    this.element.replaceChildren();
  }

  #redraw() {
    if (this.#draw && this.#width > 0) this.element.replaceChildren(...[this.#draw(this.#width)].flat());
  }
}

/** Draws with the library, as one image with a name. Its inline style sheet is left out: the page's own holds the rules. */
export function draw(label, options) {
  const svg = plot({ ...options, className: "plot" });
  for (const sheet of svg.querySelectorAll("style")) sheet.remove();
  // The library names kinds of marks ("rect"); the chart as a whole is one image, whose parts have no roles.
  for (const part of svg.querySelectorAll("[aria-label], [aria-description], [aria-hidden]")) {
    for (const name of ["aria-label", "aria-description", "aria-hidden"]) part.removeAttribute(name);
  }
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  return svg;
}

/** The name of a vertical axis, above it and clear of a legend. */
export function axisName(name, left) {
  return text([name], {
    frameAnchor: "top-left",
    dx: -left,
    dy: -12,
    lineAnchor: "middle",
    textAnchor: "start",
    text: (d) => d,
    fill: "currentColor",
  });
}

/** Marks the shapes of one mark with the keys of its data, so that the page can join them to rows of a table. */
export function keyed(svg, markClass, data, key) {
  for (const group of svg.querySelectorAll(`.${markClass}`)) {
    for (const shape of group.children) {
      const row = data[shape.__data__];
      if (row !== undefined) shape.setAttribute("data-op", key(row));
    }
  }
}

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Writes labels `{x, y, dx, dy, anchor, text, turn}` at places in pixels, turned by degrees. */
export function write(svg, labels) {
  const group = shape("g", {
    fill: "currentColor",
    stroke: "var(--paper)",
    "stroke-width": 3,
    "paint-order": "stroke",
    "stroke-linejoin": "round",
  });
  for (const { x, y, dx, dy, anchor, text: word, turn } of labels) {
    const label = shape("text", { x: x + dx, y: y + dy, dy: "0.32em", "text-anchor": anchor });
    if (turn) label.setAttribute("transform", `rotate(${turn} ${x + dx} ${y + dy})`);
    label.textContent = word;
    group.append(label);
  }
  svg.append(group);
}

/** Adds a legend along the top edge. Entries that do not fit go to further lines; returns the height that it takes. */
export function legend(svg, entries, { x = 0, y = 12, width }) {
  const group = shape("g", { class: "legend-marks" });
  let left = x;
  let line = y;
  for (const { label, colour, shape: kind } of entries) {
    const wide = 22 + label.length * 6.4 + 14;
    if (left > x && left + wide > width) [left, line] = [x, line + 17];
    const [height, top] = kind === "strip" ? [4, line - 4] : [10, line - 9];
    const word = shape("text", { x: left + 17, y: line, fill: "currentColor", "text-anchor": "start" });
    word.textContent = label;
    group.append(shape("rect", { x: left, y: top, width: 12, height, rx: 1, fill: colour }), word);
    left += wide;
  }
  svg.append(group);
}

/** Lines that a legend of these entries takes. */
export function legendLines(entries, width) {
  let left = 0;
  let lines = 1;
  for (const { label } of entries) {
    const wide = 22 + label.length * 6.4 + 14;
    if (left > 0 && left + wide > width) [left, lines] = [0, lines + 1];
    left += wide;
  }
  return lines;
}
