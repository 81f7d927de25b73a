// The shell commands that give the figures of a view.

import { batch, gridBody, serverBody, simulateBody } from "./state.js";

/** A word that a POSIX shell takes literally. */
export function quoted(word) {
  const text = String(word);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function flags(body) {
  const words = [];
  for (const [key, entry] of Object.entries(body)) {
    const flag = `--${key.replaceAll("_", "-")}`;
    if (entry === true) words.push(flag);
    else if (entry !== false) words.push(flag, quoted(entry));
  }
  return words;
}

/** The server's flags. Pasted texts become the files that the page offers for download. */
function serverFlags(state) {
  const { model, hardware, ...rest } = serverBody(state);
  return flags({
    model: typeof model === "string" ? model : "config.json",
    hardware: typeof hardware === "string" ? hardware : "gpu.toml",
    ...rest,
  });
}

/** `ridgepoint predict-step …` */
export function stepCommand(state) {
  const { prefill, decode } = batch(state);
  const words = ["ridgepoint", "predict-step", ...serverFlags(state)];
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
  const paths = {
    ...server,
    model: typeof server.model === "string" ? server.model : "config.json",
    hardware: typeof server.hardware === "object" && !Array.isArray(server.hardware) ? "gpu.toml" : server.hardware,
  };
  return toml({ server: paths, load, slo });
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
  return typeof entry === "string" ? JSON.stringify(entry) : String(entry);
}

/** TOML of an object whose values are plain, lists, or objects of plain values and lists. */
export function toml(object) {
  let plain = "";
  let tables = "";
  for (const [key, entry] of Object.entries(object)) {
    if (entry === null || entry === undefined) continue;
    if (typeof entry === "object" && !Array.isArray(entry)) tables += `[${tomlKey(key)}]\n${toml(entry)}`;
    else plain += `${tomlKey(key)} = ${tomlValue(entry)}\n`;
  }
  return plain + tables;
}
