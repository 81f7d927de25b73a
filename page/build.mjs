// Writes dist/, or the folder that is its argument: one page, one script, one style sheet, two fonts and the licences of what is in them. The same sources give the same bytes.

import { build } from "esbuild";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import path from "node:path";

const root = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(root, process.argv[2] ?? "dist");
const assets = path.join(out, "assets");
/** Licences that the binary may carry. */
const LICENCES = ["BSD-3-Clause", "ISC", "MIT", "OFL-1.1"];
const LIMIT_BYTES = 600 * 1024;

await rm(out, { recursive: true, force: true });
await mkdir(assets, { recursive: true });

const options = {
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  target: ["chrome109", "firefox115", "safari16.4"],
  absWorkingDir: root,
};
const { metafile } = await build({
  ...options,
  entryPoints: ["src/main.js"],
  format: "esm",
  outfile: path.join(assets, "page.js"),
  metafile: true,
});
await build({ ...options, entryPoints: ["src/theme.js"], format: "iife", outfile: path.join(assets, "theme.js") });
await build({ ...options, entryPoints: ["src/style.css"], external: ["*.woff2"], outfile: path.join(assets, "page.css") });
await cp(path.join(root, "src/index.html"), path.join(out, "index.html"));
await cp(path.join(root, "src/icon.svg"), path.join(assets, "icon.svg"));
const fonts = path.join(root, "node_modules/@fontsource/source-serif-4");
for (const weight of [400, 600]) {
  await cp(path.join(fonts, `files/source-serif-4-latin-${weight}-normal.woff2`), path.join(assets, `serif-${weight}.woff2`));
}
await writeFile(path.join(assets, "licences.txt"), await licences(metafile));

let total = 0;
for (const file of (await readdir(out, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())) {
  const name = path.join(file.parentPath ?? file.path, file.name);
  const bytes = gzipSync(await readFile(name), { level: 9 }).length;
  total += bytes;
  console.log(`${String(bytes).padStart(8)} bytes gzipped  ${path.relative(out, name)}`);
}
console.log(`${String(total).padStart(8)} bytes gzipped in all, of at most ${LIMIT_BYTES}`);
if (total > LIMIT_BYTES) process.exit(1);

/** The licence of every package in the bundle, and of the font; one that several share is written once. */
async function licences(meta) {
  const packages = new Set(["@fontsource/source-serif-4"]);
  for (const input of Object.keys(meta.inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) packages.add(found[1]);
  }
  const packagesOf = new Map();
  for (const name of [...packages].sort()) {
    const folder = path.join(root, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    if (!LICENCES.includes(license)) throw new Error(`${name} ${version} has the licence ${license}, which build.mjs does not list`);
    const file = (await readdir(folder)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? await readFile(path.join(folder, file), "utf8") : "";
    packagesOf.set(text.trim(), [...(packagesOf.get(text.trim()) ?? []), `${name} ${version} (${license})`]);
  }
  const texts = [...packagesOf].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`);
  return texts.join(`\n${"=".repeat(80)}\n\n`);
}
