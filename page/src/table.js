// Tables that sort by any column and are drawn anew only where they change.

import { h } from "./dom.js";

/**
 * A sortable table, whose caption may change. A column is `{key, label, value(row), cell(row), numeric, title}`: `value` sorts, `cell` is shown.
 * `caption` says what the table holds. `onRow(tr, row)` may add attributes and listeners. `detail(row)` is shown below the row over its
 * whole width, because columns of long texts would be cut; null for none.
 */
export class SortableTable {
  #rows = [];
  #by = null;
  #descending = false;

  constructor(table, { columns, caption, onRow = () => {}, detail = () => null, sort = null }) {
    this.columns = columns;
    this.onRow = onRow;
    this.detail = detail;
    if (sort) [this.#by, this.#descending] = [columns.find((column) => column.key === sort.key), sort.descending];
    this.body = h("tbody");
    this.heads = columns.map((column) => {
      const button = h("button", { type: "button", class: "sort", title: column.title, onclick: () => this.sortBy(column) }, column.label);
      return h("th", { scope: "col", class: column.numeric ? "num" : null, "data-key": column.key }, button);
    });
    this.caption = h("span", {}, caption);
    table.replaceChildren(h("caption", {}, this.caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.#mark();
  }

  sortBy(column) {
    if (this.#by !== column) [this.#by, this.#descending] = [column, Boolean(column.numeric)];
    else if (this.#descending === Boolean(column.numeric)) this.#descending = !this.#descending;
    else this.#by = null;
    this.#mark();
    this.#draw();
  }

  show(rows) {
    this.#rows = rows;
    this.#draw();
  }

  #mark() {
    this.columns.forEach((column, index) => {
      const order = this.#by === column ? (this.#descending ? "descending" : "ascending") : "none";
      this.heads[index].setAttribute("aria-sort", order);
    });
  }

  #draw() {
    const rows = [...this.#rows];
    if (this.#by) {
      const { value } = this.#by;
      const sign = this.#descending ? -1 : 1;
      rows.sort((a, b) => sign * compare(value(a), value(b)));
    }
    this.body.replaceChildren(
      ...rows.flatMap((row) => {
        const cells = this.columns.map((column, index) => {
          const tag = index === 0 ? "th" : "td";
          return h(tag, { scope: index === 0 ? "row" : null, class: column.numeric ? "num" : null }, column.cell(row));
        });
        const line = h("tr", {}, cells);
        this.onRow(line, row);
        const more = this.detail(row);
        if (!more) return [line];
        line.classList.add("has-detail");
        return [line, h("tr", { class: "detail-row" }, h("td", { colspan: this.columns.length }, more))];
      }),
    );
  }
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}
