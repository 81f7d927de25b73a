// The fields of the page and the state: typing and sliding change the state, and the state fills the fields.

import { isOn } from "./arguments.js";
import { $, h, setText } from "./dom.js";
import { makeFields, moreText } from "./fields.js";
import { ladder, nearest } from "./scale.js";

const RATES = [];
for (let power = 0.01; power < 1000; power *= 10) {
  for (const step of [1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9])
    RATES.push(Number((power * step).toPrecision(3)));
}

export class Form {
  #sliders = [...document.querySelectorAll("input[type=range][data-for]")].map((range) => ({
    range,
    input: document.getElementById(range.dataset.for),
    values: [0],
  }));
  #fields = [];

  /** `set(patch, started)` changes the state; `started` is the time of a slider's event. */
  constructor({ set }) {
    this.#find();
    document.addEventListener("input", ({ target: field }) => {
      if (!this.#fields.includes(field)) return;
      const value = field.type === "checkbox" ? (field.checked ? "1" : "") : field.value.trim();
      set({ [field.name]: value }, performance.now());
    });
    for (const slider of this.#sliders) {
      slider.range.addEventListener("input", () => {
        const value = String(slider.values[Number(slider.range.value)]);
        slider.range.setAttribute("aria-valuetext", value);
        set({ [slider.input.name]: value }, performance.now());
      });
    }
  }

  #find() {
    const named = [...document.querySelectorAll("input[name], select[name], textarea[name]")];
    this.#fields = named.filter((field) => field.getAttribute("role") !== "combobox");
  }

  /** Makes the fields of the arguments that the server knows. */
  make() {
    makeFields();
    this.#find();
  }

  /** The values of the slider of an input, by its id. */
  values(id) {
    return this.#sliders.find(({ input }) => input.id === id).values;
  }

  /** Fills all fields but the one that a person types in. */
  show(state, { longest, maxNumSeqs, maxTokens }) {
    const most = Math.max(16, longest || 8192);
    const scales = {
      decodes: () => ladder(Math.max(1, maxNumSeqs || 256)),
      // The step adds a token to a decode, and the chunk to its prompt: together they are at most max_model_len.
      context: () => ladder(most - 1, 16).slice(1),
      fit_context: () => ladder(most, 16).slice(1),
      chunk: () => ladder(Math.max(16, maxTokens || 8192), 16),
      cached: () => ladder(Math.max(64, most - (Number(state.chunk) || 0)), 64),
      request_rate: () => RATES,
      concurrency: () => ladder(1024).slice(1),
      input_len: () => ladder(most, 16).slice(1),
      output_len: () => ladder(most, 4).slice(1),
    };
    const active = document.activeElement;
    for (const field of this.#fields) {
      const value = state[field.name];
      if (value === undefined) continue;
      if (field.type === "checkbox") field.checked = isOn(value);
      else if (field !== active && field.value !== value) fill(field, value);
    }
    setText($("more-summary"), moreText(state));
    for (const slider of this.#sliders) {
      slider.values = scales[slider.input.id]();
      const at = nearest(slider.values, Number(state[slider.input.name]) || 0);
      slider.range.max = String(slider.values.length - 1);
      if (slider.range.value !== String(at)) slider.range.value = String(at);
      slider.range.setAttribute("aria-valuetext", state[slider.input.name] || "0");
    }
    const chosen = state.grid_hardware.split(",");
    for (const box of document.querySelectorAll("[data-grid]")) box.checked = chosen.includes(box.value);
    for (const [id, shown] of [
      ["request_rate", state.load === "rate"],
      ["concurrency", state.load !== "rate"],
      ["burstiness", state.load === "rate"],
    ]) {
      document.querySelector(`#load .controls [data-field=${id}]`).hidden = !shown;
    }
  }
}

/** Fills a field. A choice that the list lacks is added, so that the value of a permalink is seen. */
function fill(field, value) {
  const isMissing = field.localName === "select" && ![...field.options].some((option) => option.value === value);
  if (isMissing && field.id !== "hardware") field.append(h("option", { value }, value));
  field.value = value;
}
