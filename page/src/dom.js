// Short forms for building elements.

/** Makes an element. Attributes that are null or false are left out; functions become listeners; children are nodes or texts. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.replace(/^on/, ""), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element with an id. */
export function $(id) {
  return document.getElementById(id);
}

/** A figure whose exact value the document holds next to its text. */
export function figure(value, text, attributes = {}) {
  return h("data", { value, ...attributes }, text);
}

/** Replaces the text of an element only if it differs, so that live regions do not repeat themselves. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Calls `run` once, `delay_ms` after the last call. */
export function debounced(run, delay_ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), delay_ms);
  };
}
