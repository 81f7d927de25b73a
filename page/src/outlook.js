// Small curves below the sliders of a step: how its time would change with each of them, while the others stay.

import { post } from "./api.js";
import { debounced, h } from "./dom.js";
import { micros } from "./format.js";
import { FieldFault, stepBody } from "./state.js";
import { nearest } from "./scale.js";

const POINTS = 12;
const AT_ONCE = 4;

export class Outlook {
  #abort = null;

  /** `state()` is the state of the page, `values(id)` the values of a slider. */
  constructor({ state, values }) {
    Object.assign(this, { state, values });
    this.places = [...document.querySelectorAll("[data-outlook]")];
    this.soon = debounced(() => this.#run(), 400);
  }

  /** Ends what is under way, so that a slider's own answer never waits. */
  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  async #run() {
    this.stop();
    const state = this.state();
    if (state.view !== "step") return;
    const abort = new AbortController();
    this.#abort = abort;
    const curves = this.places.map((place) => ({
      place,
      key: place.dataset.outlook,
      values: this.values(place.dataset.outlook),
      points: [],
    }));
    const jobs = curves.flatMap((curve) => {
      const last = curve.values.length - 1;
      const steps = Array.from({ length: POINTS }, (_, index) => Math.round((index / (POINTS - 1)) * last));
      return [...new Set(steps)].map((at) => ({ curve, at }));
    });
    const worker = async () => {
      for (let job = jobs.shift(); job && !abort.signal.aborted; job = jobs.shift()) {
        const { curve, at } = job;
        try {
          const { explain, ...body } = stepBody({ ...state, [curve.key]: String(curve.values[at]) });
          const { step_time_us } = await post("v1/predict-step", body, abort.signal);
          curve.points.push({ at, time_us: step_time_us });
        } catch (error) {
          // A step without requests, or one that the server refuses, has no point.
          if (error.name === "AbortError") return;
          if (!(error instanceof FieldFault) && !error.status) return;
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (abort.signal.aborted) return;
    const most = Math.max(...curves.flatMap(({ points }) => points.map(({ time_us }) => time_us)));
    for (const curve of curves) draw(curve, most, Number(state[curve.key]) || 0);
  }
}

const SVG = "http://www.w3.org/2000/svg";

function draw({ place, values, points }, most, value) {
  if (points.length < 2) {
    place.replaceChildren();
    return;
  }
  points.sort((a, b) => a.at - b.at);
  const x = (at) => (at / (values.length - 1)) * 100;
  const y = (time_us) => 100 - (time_us / most) * 100;
  const here = nearest(values, value);
  const after = points.findIndex(({ at }) => at >= here);
  const [left, right] = [points[Math.max(0, after - 1)], points[after < 0 ? points.length - 1 : after]];
  const share = right.at > left.at ? Math.max(0, Math.min(1, (here - left.at) / (right.at - left.at))) : 0;
  const level = left.time_us + share * (right.time_us - left.time_us);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", `M${points.map(({ at, time_us }) => `${x(at).toFixed(2)},${y(time_us).toFixed(2)}`).join("L")}`);
  const dot = document.createElementNS(SVG, "path");
  dot.setAttribute("class", "here");
  dot.setAttribute("d", `M${x(here).toFixed(2)},${y(level).toFixed(2)}h0`);
  svg.append(line, dot);
  place.replaceChildren(svg, h("p", {}, h("span", {}, micros(points[0].time_us)), h("span", {}, micros(points.at(-1).time_us))));
}
