// Faults on the page: at the field that they are about, and all together above the figures with their remedies.

import { $, h } from "./dom.js";
import { placed, remedies } from "./problems.js";

const NAMES = { token: "the token", config: "your config.json", gpu: "your GPU's figures", hardware: "the GPU", model: "the model" };

export class Faults {
  #of = new Map();

  /** `set(patch)` takes a remedy. */
  constructor({ set }) {
    this.set = set;
  }

  /** Sets the problems of one kind of request; none clears them. `field` places those that name none. */
  report(kind, problems, state, field = "") {
    if (problems.length === 0 && !this.#of.has(kind)) return;
    if (problems.length === 0) this.#of.delete(kind);
    else {
      const at = placed(problems, state);
      if (field && at.has("")) {
        at.set(field, [...(at.get(field) ?? []), ...at.get("")]);
        at.delete("");
      }
      this.#of.set(kind, at);
    }
    this.#show();
  }

  #show() {
    const fields = new Map();
    for (const at of this.#of.values()) {
      for (const [field, problems] of at) fields.set(field, [...new Set([...(fields.get(field) ?? []), ...problems])]);
    }
    for (const box of document.querySelectorAll("[data-field]")) this.#at(box, fields.get(box.dataset.field) ?? []);
    const list = $("problems");
    list.hidden = fields.size === 0;
    const items = [...fields].map(([field, problems]) => {
      const box = field ? document.querySelector(`[data-field="${field}"]`) : null;
      const input = box?.querySelector("input, select, textarea");
      const go = input ? h("button", { type: "button", class: "link", onclick: () => show(input) }, NAMES[field] ?? field) : null;
      return h("li", {}, go, go ? ": " : "", problems.join("; "), " ", this.#chips(problems));
    });
    const text = items.map((item) => item.textContent).join();
    if (list.dataset.text === text) return;
    list.dataset.text = text;
    if (items.length === 0) {
      list.replaceChildren();
      return;
    }
    list.replaceChildren(
      h("p", {}, h("strong", {}, items.length === 1 ? "One thing stands in the way." : "Some things stand in the way.")),
      h("ul", {}, items),
    );
  }

  #at(box, problems) {
    const input = box.querySelector("input:not([type=range]), select, textarea");
    const old = box.querySelector(".fault");
    if (problems.length === 0) {
      old?.remove();
      box.classList.remove("faulty");
      input?.removeAttribute("aria-invalid");
      if (input?.getAttribute("aria-errormessage")) input.removeAttribute("aria-errormessage");
      return;
    }
    const text = problems.join("; ");
    box.classList.add("faulty");
    input?.setAttribute("aria-invalid", "true");
    if (old?.dataset.text === text) return;
    old?.remove();
    const id = `fault-${box.dataset.field}`;
    box.append(h("div", { class: "fault", id, "data-text": text }, text, " ", this.#chips(problems)));
    input?.setAttribute("aria-errormessage", id);
    const fold = box.closest("details.own");
    if (fold) fold.open = true;
  }

  #chips(problems) {
    return problems
      .flatMap(remedies)
      .map(({ key, value }) =>
        h("button", { type: "button", class: "chip", onclick: () => this.set({ [key]: value }) }, `${key} = ${value}`),
      );
  }
}

function show(input) {
  for (let fold = input.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  input.scrollIntoView({ block: "center" });
  input.focus();
}
