// The view of one step: its figures, where its time goes, the roofline and the table of operators.

import { BOUNDS, Frame, PROVENANCE, colourOf } from "../charts/frame.js";
import { rowChart } from "../charts/rows.js";
import { rooflineChart } from "../charts/roofline.js";
import { $, figure, h, setText } from "../dom.js";
import { micros, number, percent, scaled, tick, whole } from "../format.js";
import { SortableTable } from "../table.js";
import { figures, warnings } from "./parts.js";

const GROUPS = {
  projections: "projections",
  attention_prefill: "attention of prefill",
  attention_decode: "attention of decodes",
  experts: "experts",
  communication: "communication",
  small_kernels: "small kernels",
  sampling: "sampling",
};

const BOUND_WORDS = {
  memory: "memory bandwidth",
  compute: "compute",
  network: "the link between GPUs",
  latency: "the latency of small kernels",
};

function groupName(group) {
  return group === null ? "overheads" : (GROUPS[group] ?? group.replaceAll("_", " "));
}

/** The share of the step's time that each kind of bound has, the largest first. */
export function bounds(answer) {
  const sums = new Map();
  for (const { bound, time_us } of answer.operators) sums.set(bound, (sums.get(bound) ?? 0) + time_us);
  const total = [...sums.values()].reduce((sum, time) => sum + time, 0);
  return [...sums]
    .map(([bound, time_us]) => ({ bound, time_us, share: total > 0 ? time_us / total : 0 }))
    .sort((a, b) => b.time_us - a.time_us);
}

export class StepView {
  constructor() {
    this.bar = new Frame($("step-bar"));
    this.roofline = new Frame($("roofline"));
    this.table = new SortableTable($("operators"), {
      caption: "Operators of the step on one GPU. FLOPs, bytes and times are those of all calls.",
      columns: COLUMNS,
      onRow: (line, row) => line.setAttribute("data-op", row.name),
    });
    for (const id of ["step-bar", "roofline", "operators"]) {
      $(id).addEventListener("pointerover", (event) => this.#point(event.target.closest("[data-op]")?.dataset.op));
      $(id).addEventListener("pointerleave", () => this.#point(undefined));
    }
  }

  show(answer, { hardware, formats }) {
    this.answer = answer;
    const kinds = bounds(answer);
    const slowest = answer.operators.reduce((most, one) => (one.time_us > most.time_us ? one : most), answer.operators[0]);
    $("step-lead").replaceChildren(
      h(
        "p",
        {},
        "This step takes ",
        h("strong", {}, micros(answer.step_time_us)),
        `; it would take ${micros(answer.bound_us)} if every operator reached its roof. `,
        h("strong", {}, capital(BOUND_WORDS[kinds[0].bound] ?? kinds[0].bound)),
        ` bounds ${percent(kinds[0].share, 0)} of it`,
        kinds[1] && kinds[1].share > 0.15 ? `, ${BOUND_WORDS[kinds[1].bound] ?? kinds[1].bound} ${percent(kinds[1].share, 0)}` : "",
        `. The slowest operator is `,
        h("code", {}, slowest.name),
        ` with ${percent(slowest.share, 0)}.`,
      ),
    );
    $("step-figures").replaceChildren(...figures(this.#figures(answer)));
    $("step-warnings").replaceChildren(warnings(answer.warnings));
    this.bar.show((width) => this.#bar(width, kinds));
    if (hardware) this.roofline.show((width) => rooflineChart({ answer, hardware, formats, width }));
    $("explanation").replaceChildren(
      answer.explanation?.length
        ? h(
            "section",
            { class: "block" },
            h("h2", {}, "What limits it, and what would help"),
            h(
              "ul",
              { class: "prose" },
              answer.explanation.map((line) => h("li", {}, line)),
            ),
          )
        : "",
    );
    this.table.show(answer.operators);
  }

  #figures(answer) {
    const list = [
      {
        key: "step_time_us",
        term: "Step time",
        value: answer.step_time_us,
        text: micros(answer.step_time_us),
        note: `90 %: ${micros(answer.lower_us)} to ${micros(answer.upper_us)}`,
        large: true,
      },
      {
        key: "bound_us",
        term: "Roofline bound",
        value: answer.bound_us,
        text: micros(answer.bound_us),
        note: `${percent(answer.roofline_share, 0)} of the step time`,
        large: true,
      },
      { key: "mfu", term: "MFU", value: answer.mfu, text: percent(answer.mfu), note: scaled(answer.total_flops, "FLOP") },
      { key: "mbu", term: "MBU", value: answer.mbu, text: percent(answer.mbu), note: scaled(answer.total_bytes, "B") },
    ];
    if (answer.deployment.pipeline_parallel_size === 1 && answer.batch.num_sampled > 0) {
      const rate = (answer.batch.num_sampled / answer.step_time_us) * 1e6;
      list.push({
        key: "rate",
        term: "Tokens/s",
        value: rate,
        text: whole(rate),
        note: `${whole(answer.batch.num_sampled)} sampled in the step`,
      });
    }
    return list;
  }

  #bar(width, kinds) {
    const { answer } = this;
    const segments = [];
    const groups = [];
    let at = 0;
    for (const { group, time_us, share } of answer.groups) {
      const start = at;
      const own = answer.operators.filter((operator) => operator.group === group);
      for (const operator of own) {
        segments.push({
          x1: at,
          x2: at + operator.time_us,
          colour: colourOf(BOUNDS, operator.bound),
          strip: colourOf(PROVENANCE, operator.provenance),
          key: operator.name,
        });
        at += operator.time_us;
      }
      groups.push({
        label: groupName(group),
        note: `${micros(time_us)}, ${percent(share)}`,
        segments: segments.filter(({ x1 }) => x1 >= start).map((segment) => ({ ...segment, text: segment.key })),
      });
    }
    const scale = answer.step_time_us >= 1e6 ? [1e6, "s"] : answer.step_time_us >= 2000 ? [1e3, "ms"] : [1, "µs"];
    return rowChart({
      label: `The step of ${micros(answer.step_time_us)} by groups of operators. The table of operators has the figures.`,
      width,
      format: (value) => (value === 0 ? "0" : `${tick(value / scale[0])} ${scale[1]}`),
      rows: [
        {
          label: "whole step",
          note: micros(answer.step_time_us),
          strong: true,
          segments,
          interval: [answer.lower_us, answer.upper_us],
          at,
        },
        ...groups.filter((group) => group.segments.length > 0),
      ],
      rules: [{ x: answer.bound_us, label: `roofline ${micros(answer.bound_us)}` }],
      entries: [
        ...kinds.map(({ bound, share }) => ({
          label: `${BOUNDS[bound]?.label ?? bound} ${percent(share, 0)}`,
          colour: colourOf(BOUNDS, bound),
        })),
        ...Object.keys(answer.provenance).map((source) => ({
          label: `${source} ${percent(answer.provenance[source], 0)}`,
          colour: colourOf(PROVENANCE, source),
          shape: "strip",
        })),
      ],
    });
  }

  #point(name) {
    if (name === this.pointed) return;
    this.pointed = name;
    for (const shape of document.querySelectorAll("#step [data-op]"))
      shape.classList.toggle("pointed", Boolean(name) && shape.dataset.op === name);
    $("step").classList.toggle("pointing", Boolean(name));
    const operator = this.answer?.operators.find((one) => one.name === name);
    setText($("step-tip"), operator ? describe(operator) : "\u00a0");
  }
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function describe({ name, count, time_us, share, bound, efficiency, provenance }) {
  return `${name}: ${micros(time_us)} (${percent(share)}) in ${whole(count)} ${count === 1 ? "call" : "calls"}, bound by ${bound}, ${percent(efficiency, 0)} of its roofline, ${provenance}`;
}

const swatch = (map, name) =>
  h("span", {}, h("span", { class: "swatch", "data-colour": name, "data-map": map === BOUNDS ? "bound" : "source" }), name);

const COLUMNS = [
  { key: "name", label: "operator", value: (row) => row.name, cell: (row) => h("code", {}, row.name) },
  { key: "count", label: "calls", numeric: true, value: (row) => row.count, cell: (row) => whole(row.count) },
  { key: "time_us", label: "time", numeric: true, value: (row) => row.time_us, cell: (row) => figure(row.time_us, micros(row.time_us)) },
  { key: "share", label: "share", numeric: true, value: (row) => row.share, cell: (row) => figure(row.share, percent(row.share)) },
  { key: "bound", label: "bound by", value: (row) => row.bound, cell: (row) => swatch(BOUNDS, row.bound) },
  {
    key: "bound_us",
    label: "roofline",
    numeric: true,
    title: "Time at the roofline",
    value: (row) => row.bound_us,
    cell: (row) => (row.bound_us > 0 ? micros(row.bound_us) : "–"),
  },
  {
    key: "efficiency",
    label: "efficiency",
    numeric: true,
    title: "Roofline over time",
    value: (row) => row.efficiency,
    cell: (row) => (row.efficiency > 0 ? percent(row.efficiency) : "–"),
  },
  { key: "flops", label: "FLOPs", numeric: true, value: (row) => row.flops, cell: (row) => (row.flops > 0 ? scaled(row.flops, "") : "–") },
  { key: "bytes", label: "bytes", numeric: true, value: (row) => row.bytes, cell: (row) => (row.bytes > 0 ? scaled(row.bytes, "B") : "–") },
  {
    key: "intensity",
    label: "FLOP/byte",
    numeric: true,
    value: (row) => row.flops / row.bytes,
    cell: (row) => (row.flops > 0 ? number(row.flops / row.bytes) : "–"),
  },
  {
    key: "provenance",
    label: "from",
    title: "Where the time comes from",
    value: (row) => row.provenance,
    cell: (row) => swatch(PROVENANCE, row.provenance),
  },
];
