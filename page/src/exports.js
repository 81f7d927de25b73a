// Files and texts that leave the page: csv, JSON, SVG, commands and permalinks.

import { h, $ } from "./dom.js";

/** Offers a text as a file. */
export function download(name, text, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Copies a text and says so, also where the clipboard is closed to the page: a selected field is then shown instead. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    const area = h("textarea", { class: "copy-fallback", readonly: true, rows: 4, "aria-label": what });
    area.value = text;
    const box = h(
      "dialog",
      {},
      h("p", {}, `${what}: press Ctrl+C to copy.`),
      area,
      h("form", { method: "dialog" }, h("button", {}, "Close")),
    );
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
    area.select();
  }
}

let hide = 0;

/** A short remark at the foot of the page, which screen readers read too. */
export function say(text) {
  const toast = $("toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(hide);
  hide = setTimeout(() => toast.classList.remove("shown"), 2500);
}

const PROPERTIES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "fill-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-variant-numeric",
  "text-anchor",
  "paint-order",
  "stroke-linejoin",
  "display",
];

/** A chart as a file of its own: the styles of the page, colours of its theme included, become attributes. */
export function svgText(svg, title) {
  const copied = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  const copies = [copied, ...copied.querySelectorAll("*")];
  originals.forEach((original, index) => {
    const style = getComputedStyle(original);
    const target = copies[index];
    target.removeAttribute("class");
    target.removeAttribute("style");
    target.removeAttribute("tabindex");
    if (!(original instanceof SVGGraphicsElement) || original === svg) return;
    for (const property of PROPERTIES) {
      const value = style.getPropertyValue(property);
      const parent = original.parentElement;
      const inherited = parent && parent !== svg && property !== "opacity" && getComputedStyle(parent).getPropertyValue(property) === value;
      if (value && (!inherited || /var\(/.test(target.getAttribute(property) ?? ""))) target.setAttribute(property, value);
    }
  });
  copied.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copied.setAttribute("color", getComputedStyle(svg).color);
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  background.setAttribute("width", "100%");
  background.setAttribute("height", "100%");
  background.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  const heading = document.createElementNS("http://www.w3.org/2000/svg", "title");
  heading.textContent = title;
  copied.prepend(heading, background);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copied)}\n`;
}

/** A name of a file made of words: "llama-3.1-70b step" → "llama-3.1-70b-step". */
export function fileName(...words) {
  return words
    .filter(Boolean)
    .join("-")
    .replace(/[^\w.-]+/g, "-");
}
