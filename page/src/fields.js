// The fields of the setup form that are made from the server's list of arguments.

import { choicesOf, fieldRows, FIRST, kindOf, rowOf, SECTIONS } from "./arguments.js";
import { $, h } from "./dom.js";

/** Characters of a choice that a narrow field shows. */
const NARROW = 12;

/** The control of an argument: its default in words stands where no value is given. */
function control(row) {
  const { name, schema, default: words } = row;
  const shared = { id: name, name, "aria-describedby": `help-${name}` };
  const kind = kindOf(row);
  if (kind === "json") return h("textarea", { ...shared, rows: 2, spellcheck: "false", placeholder: words || "JSON" });
  if (kind === "switch" && words === "") return h("input", { ...shared, type: "checkbox" });
  if (kind === "switch" || kind === "choice") {
    const others = choicesOf(row).filter((choice) => choice !== words);
    const options = others.map((choice) => h("option", { value: choice }, choice));
    return h("select", shared, h("option", { value: "" }, words || "not set"), options);
  }
  const inputmode = { whole: "numeric", number: "decimal" }[kind];
  return h("input", { ...shared, inputmode, spellcheck: "false", placeholder: words, title: schema.description });
}

/** Whether a control needs the whole width of the form: JSON, and long choices or defaults. */
function isWide(row) {
  const kind = kindOf(row);
  if (kind === "json") return true;
  if (kind === "switch" && row.default === "") return false;
  const choices = kind === "switch" || kind === "choice" ? choicesOf(row) : [];
  return [row.default, ...choices].some(({ length }) => length > NARROW);
}

/** A name that breaks between its words alone. */
function breakable(name) {
  return name.split("_").flatMap((word, index) => (index === 0 ? [word] : ["_", h("wbr"), word]));
}

function field(row) {
  const { name, schema } = row;
  return h(
    "div",
    { class: isWide(row) ? "field wide" : "field", "data-field": name },
    h("label", { for: name, title: schema.description }, breakable(name)),
    control(row),
    h("p", { class: "help", id: `help-${name}` }, schema.description),
  );
}

/** Makes the fields: those that are visible at once by section, and all others in the fold, under the titles of their sections. */
export function makeFields() {
  const all = fieldRows();
  const first = FIRST.map(rowOf).filter((row) => all.includes(row));
  for (const place of document.querySelectorAll("[data-sections]")) {
    const sections = place.dataset.sections.split(" ");
    place.replaceChildren(...first.filter(({ section }) => sections.includes(section)).map(field));
  }
  const more = Object.entries(SECTIONS).flatMap(([section, title]) => {
    const rows = all.filter((row) => row.section === section && !first.includes(row));
    return rows.length > 0 ? [h("h3", {}, title), ...rows.map(field)] : [];
  });
  $("more").replaceChildren(...more);
  $("more-fold").hidden = more.length === 0;
  hints();
}

/** Gives the controls of a load the words of their arguments. Sliders have hints of their own. */
function hints() {
  for (const input of document.querySelectorAll("#load .controls input.exact")) {
    const row = rowOf(input.name);
    if (!row) continue;
    input.placeholder = row.default;
    input.title = row.schema.description;
    const hint = input.parentElement.querySelector(".hint:empty");
    if (hint) hint.textContent = row.help;
  }
}

/** Says how many arguments in the fold have a value. */
export function moreText(state) {
  const given = fieldRows().filter(({ name }) => !FIRST.includes(name) && state[name]).length;
  return given === 0 ? "More arguments" : `More arguments, ${given} given`;
}
