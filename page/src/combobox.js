// A searchable list: a text field with a list of what matches, as the ARIA practices describe it.

import { h } from "./dom.js";

const MOST = 60;

export class Combobox {
  #items = [];
  #shown = [];
  #active = -1;

  /** `describe(item)` gives `{value, note, search}`; `choose(value)` is called with a choice or with a text that is typed in. */
  constructor(input, list, { describe, choose }) {
    Object.assign(this, { input, list, describe, choose });
    input.addEventListener("input", () => this.#open(input.value));
    input.addEventListener("click", () => this.#open(""));
    input.addEventListener("keydown", (event) => this.#key(event));
    input.addEventListener("blur", () => {
      this.#close();
      if (input.value.trim() !== "" && input.value.trim() !== this.value) this.choose(input.value.trim());
      else input.value = this.value;
    });
    list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const option = event.target.closest("[role=option]");
      if (option) this.#take(option.dataset.value);
    });
  }

  set items(items) {
    this.#items = items.map((item) => ({ ...this.describe(item), item }));
  }

  show(value) {
    this.value = value;
    if (document.activeElement !== this.input || this.list.hidden) this.input.value = value;
  }

  #open(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#shown = this.#items
      .filter(({ search }) => words.every((word) => search.includes(word)))
      .slice(0, MOST + this.#items.length * (words.length === 0));
    this.#active = this.#shown.findIndex(({ value }) => value === this.value);
    if (words.length > 0 && this.#active < 0) this.#active = this.#shown.length > 0 ? 0 : -1;
    this.list.replaceChildren(
      ...this.#shown.map(({ value, note }, index) =>
        h(
          "li",
          { role: "option", id: `${this.list.id}-${index}`, "data-value": value, "aria-selected": String(index === this.#active) },
          h("span", {}, value),
          h("small", {}, note),
        ),
      ),
    );
    this.list.hidden = this.#shown.length === 0;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.#mark();
  }

  #mark() {
    [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === this.#active)));
    const active = this.list.children[this.#active];
    if (active && !this.list.hidden) {
      this.input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView({ block: "nearest" });
    } else this.input.removeAttribute("aria-activedescendant");
  }

  #close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #take(value) {
    this.#close();
    this.input.value = value;
    this.value = value;
    this.choose(value);
  }

  #key(event) {
    if (event.key === "Escape") {
      this.#close();
      this.input.value = this.value;
    } else if (event.key === "Enter") {
      event.preventDefault();
      const active = this.#shown[this.#active];
      if (!this.list.hidden && active) this.#take(active.value);
      else if (this.input.value.trim() !== "") this.#take(this.input.value.trim());
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.#open(this.input.value === this.value ? "" : this.input.value);
      else {
        const step = event.key === "ArrowDown" ? 1 : -1;
        this.#active = (this.#active + step + this.#shown.length) % Math.max(1, this.#shown.length);
        this.#mark();
      }
    }
  }
}
