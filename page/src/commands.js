// The shell commands that give the figures of a view.

import { fileOf, isFile, rowOf } from "./arguments.js";
import { batch, gridBody, serverBody, simulateBody } from "./state.js";

/** A word that a POSIX shell takes literally. */
export function quoted(word) {
  const text = String(word);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The words of arguments that the server's list has: a switch alone or with `no-`, objects as JSON. */
function flags(body) {
  const words = [];
  for (const [key, entry] of Object.entries(body)) {
    const { flag } = rowOf(key);
    if (entry === true) words.push(flag);
    else if (entry === false) words.push(flag.replace(/^--/, "--no-"));
    else words.push(flag, quoted(typeof entry === "object" ? JSON.stringify(entry) : entry));
  }
  return words;
}

/** A server's keys for the command: pasted texts become the files that the page offers for download. */
function withFiles(server) {
  const files = { model: "config.json", hardware: "gpu.toml" };
  return Object.fromEntries(
    Object.entries(server).map(([key, entry]) => {
      const isObject = typeof entry === "object" && !Array.isArray(entry);
      if (key in files) return [key, isObject ? files[key] : entry];
      return [key, isObject && isFile(rowOf(key)) ? fileOf(rowOf(key)) : entry];
    }),
  );
}

/** The server's flags. */
function serverFlags(state) {
  return flags(withFiles(serverBody(state)));
}

/** The flags of a step's server. A step has no scheduler, and its command does not know the scheduler's arguments. */
function stepFlags(state) {
  const keys = Object.entries(withFiles(serverBody(state)));
  return flags(Object.fromEntries(keys.filter(([key]) => rowOf(key).section !== "scheduler")));
}

/** `ridgepoint predict-step …` */
export function stepCommand(state) {
  const { prefill, decode } = batch(state);
  const words = ["ridgepoint", "predict-step", ...stepFlags(state)];
  if (prefill) words.push("--prefill", ...prefill);
  if (decode) words.push("--decode", ...decode);
  return [...words, "--explain"].join(" ");
}

/** `ridgepoint simulate …` */
export function loadCommand(state) {
  const { series, ...body } = simulateBody(state);
  const server = serverBody(state);
  const load = Object.fromEntries(Object.entries(body).filter(([key]) => !(key in server)));
  return ["ridgepoint", "simulate", ...serverFlags(state), ...flags(load)].join(" ");
}

/** `ridgepoint simulate … --print-kv-capacity`: the command that prints the memory equation. */
export function memoryCommand(state) {
  const load = { concurrency: 1, num_requests: 1, input_len: 16, output_len: 1 };
  return ["ridgepoint", "simulate", ...serverFlags(state), ...flags(load), "--print-kv-capacity"].join(" ");
}

/** `ridgepoint sweep …` with its grid as a here-document. */
export function sweepCommand(state) {
  const { server, load, slo, ...sources } = gridBody(state);
  const words = ["ridgepoint", "sweep", "grid.toml", "--out", "rows.csv", ...flags(sources)].join(" ");
  return `cat > grid.toml <<'END'\n${gridToml(state)}END\n${words}`;
}

/** The grid as sweep.toml has it. */
export function gridToml(state) {
  const { server, load, slo } = gridBody(state);
  return toml({ server: withFiles(server), load, slo });
}

/** A curl of the same request. */
export function curl(origin, path, body) {
  return `curl -s ${origin}${path} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
}

function tomlKey(key) {
  return /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
}

function tomlValue(entry) {
  if (Array.isArray(entry)) return `[${entry.map(tomlValue).join(", ")}]`;
  if (typeof entry !== "object") return typeof entry === "string" ? JSON.stringify(entry) : String(entry);
  const given = Object.entries(entry).filter(([, value]) => value !== null);
  return `{ ${given.map(([key, value]) => `${tomlKey(key)} = ${tomlValue(value)}`).join(", ")} }`;
}

/** TOML of an object whose objects become tables, and the objects in those inline tables. */
export function toml(object) {
  let plain = "";
  let tables = "";
  for (const [key, entry] of Object.entries(object)) {
    if (entry === null || entry === undefined) continue;
    if (typeof entry === "object" && !Array.isArray(entry)) tables += `[${tomlKey(key)}]\n${pairs(entry)}`;
    else plain += pairs({ [key]: entry });
  }
  return plain + tables;
}

function pairs(object) {
  const given = Object.entries(object).filter(([, entry]) => entry !== null && entry !== undefined);
  return given.map(([key, entry]) => `${tomlKey(key)} = ${tomlValue(entry)}\n`).join("");
}
