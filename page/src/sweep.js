// Runs the grid of the capacity view: one configuration after the other, so that progress shows and a cancel keeps what is done.

import { post } from "./api.js";
import { $, setText } from "./dom.js";
import { number, whole } from "./format.js";
import { problemsOf } from "./problems.js";
import { configurations, FieldFault, gridBody, gridSize } from "./state.js";

/** Configurations under way at once. */
const AT_ONCE = 2;
const MOST = 500;

export class Sweep {
  #abort = null;
  rows = [];

  constructor({ view, faults, state }) {
    Object.assign(this, { view, faults, state });
    $("run-sweep").addEventListener("click", () => this.run());
    $("cancel-sweep").addEventListener("click", () => this.#abort?.abort());
  }

  /** Says how large the grid is. */
  size() {
    let text = "";
    try {
      const count = gridSize(gridBody(this.state()));
      text = `${whole(count)} ${count === 1 ? "configuration" : "configurations"}`;
      if (count > MOST) text += `: at most ${MOST} run from this page, take the command for more`;
      $("run-sweep").disabled = count > MOST;
    } catch (error) {
      if (!(error instanceof FieldFault)) throw error;
    }
    setText($("sweep-size"), text);
  }

  async run() {
    let list;
    try {
      list = configurations(gridBody(this.state()));
    } catch (error) {
      if (!(error instanceof FieldFault)) throw error;
      this.faults.report("sweep", [error.message], this.state(), error.field);
      return;
    }
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    this.rows = [];
    this.faults.report("sweep", [], this.state());
    this.view.showGrid([], Object.keys(list[0].slo));
    this.#busy(true);
    const started = performance.now();
    let next = 0;
    let done = 0;
    let problems = [];
    const progress = () => {
      $("sweep-bar").max = list.length;
      $("sweep-bar").value = done;
      const left = done > 0 ? ((performance.now() - started) / done) * (list.length - done) : 0;
      setText($("sweep-note"), `${whole(done)} of ${whole(list.length)}${left > 1000 ? `, about ${number(left / 1000, 2)} s left` : ""}`);
    };
    const worker = async () => {
      while (next < list.length && !abort.signal.aborted) {
        const at = next;
        next += 1;
        try {
          const { rows } = await post("v1/sweep", list[at], abort.signal);
          if (abort.signal.aborted) return;
          this.rows.push({ ...rows[0], configuration: at });
        } catch (error) {
          if (error.name === "AbortError") return;
          problems = [...new Set([...problems, ...problemsOf(error.error ?? { message: error.message })])];
        }
        done += 1;
        progress();
        this.view.showGrid(this.rows);
      }
    };
    progress();
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (this.#abort !== abort) return;
    this.#abort = null;
    this.rows.sort((a, b) => a.configuration - b.configuration);
    this.view.showGrid(this.rows);
    this.#busy(false);
    const seconds = number((performance.now() - started) / 1000, 2);
    setText(
      $("sweep-note"),
      abort.signal.aborted
        ? `Cancelled after ${whole(done)} of ${whole(list.length)} configurations.`
        : `${whole(done)} configurations in ${seconds} s.`,
    );
    $("sweep-progress").hidden = false;
    $("sweep-bar").hidden = true;
    if (problems.length > 0) this.faults.report("sweep", problems, this.state());
  }

  #busy(busy) {
    $("cancel-sweep").hidden = !busy;
    $("sweep-progress").hidden = !busy;
    $("sweep-bar").hidden = !busy;
    $("run-sweep").disabled = busy;
  }
}
