// Parts that several views have.

import { figure, h } from "../dom.js";

/** Terms of a definition list with large figures. */
export function figures(list) {
  return list.map(({ key, term, value, text, note, large }) =>
    h(
      "div",
      { class: large ? "large" : null },
      h("dt", {}, term),
      h("dd", {}, figure(value, text, { "data-figure": key }), note ? h("small", {}, note) : null),
    ),
  );
}

/** What is known of every predicted TTFT p99; the command prints it below its latencies, too. */
export const TTFT_TAIL_REMARK = "On public runs, predicted TTFT p99 was about 20 % too low.";

/** Warnings as a list that stays folded where it is long. */
export function warnings(list) {
  if (!list?.length) return "";
  const items = h(
    "ul",
    {},
    list.map((text) => h("li", {}, text)),
  );
  if (list.length <= 2) return h("div", { class: "warnings" }, items);
  return h("details", { class: "warnings" }, h("summary", {}, `${list.length} warnings, the first: ${list[0]}`), items);
}
