// The few words of each heading: its figure, and of what step or load the figure is.

import { number, percent, tick, whole } from "./format.js";
import { binding, loadState } from "./rows.js";

const tokens = ({ input_len, output_len }) => `${whole(Number(input_len))} + ${whole(Number(output_len))} tokens`;

/** "4 req/s" or "32 in flight" */
export function sent({ load, request_rate, concurrency }) {
  return load === "rate" ? `${tick(Number(request_rate))} req/s` : `${whole(Number(concurrency))} in flight`;
}

/** "64 decodes of 2,048 and a chunk of 512; memory bounds 80 %" */
export function stepNote({ decodes, context, chunk }, { bound, share }) {
  const parts = [];
  if (Number(decodes) > 0) parts.push(`${whole(Number(decodes))} × ${whole(Number(context))}`);
  if (Number(chunk) > 0) parts.push(`chunk of ${whole(Number(chunk))}`);
  return `${parts.join(" + ")}; ${bound} bounds ${percent(share, 0)}`;
}

const STATES = { overloaded: "does not keep up", at_limit: "at its limit" };

/** "p99 at 4 req/s; 1,024 + 256 tokens, 1,000 requests" */
export function loadNote(state, load, requests) {
  const says = STATES[load] ? `, ${STATES[load]}` : "";
  return `p99 at ${sent(state)}${says}; ${tokens(state)}, ${whole(requests)} requests`;
}

/** The capacity of a row: `answer` and `note`. */
export function capacityCard(row, state) {
  const load = `${tokens(state)}, ${whole(row.num_requests ?? Number(state.grid_requests))} requests`;
  if (row.status === "cannot_run") return { answer: "cannot run", note: "memory or layout" };
  if (row.status === "lowest_rate_fails") return { answer: "no rate holds", note: `${binding(row)} breaks; ${load}` };
  if (row.status === "highest_rate_holds") return { answer: "no limit breaks", note: "limit TTFT or E2E too" };
  const answer = `${number(row.request_rate_per_s)} req/s`;
  const says = STATES[loadState(row)];
  return { answer, note: says ? `${says} at this rate; ${load}` : `${binding(row)} binds; ${load}`, late: Boolean(says) };
}

const SOURCES = {
  measured: "kernels as measured",
  interpolated: "interpolated between measured kernels",
  clamped: "held at the edge of measured kernels",
  borrowed: "from kernels of another GPU",
  datasheet: "from the datasheet alone",
  ideal: "at the textbook roofline",
  learned: "from a correction fitted to real engines",
};

/** Where most of a step's time comes from: `answer` and `note`. It is a source and no grade. */
export function sourceCard(provenance) {
  const [[source, share]] = Object.entries(provenance).sort((a, b) => b[1] - a[1]);
  return { answer: source, note: `${percent(share, 0)} of the step's time is ${SOURCES[source] ?? source}` };
}
