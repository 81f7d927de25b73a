// Long texts in a permalink: compressed where the browser can, in the alphabet of base64url.

function toBase64Url(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

async function through(bytes, transform) {
  const stream = new Blob([bytes]).stream().pipeThrough(transform);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Packs a text. The first letter names the coding: `z` is compressed, `p` plain. */
export async function pack(text) {
  if (text === "") return "";
  const bytes = new TextEncoder().encode(text);
  if (typeof CompressionStream === "undefined") return `p${toBase64Url(bytes)}`;
  return `z${toBase64Url(await through(bytes, new CompressionStream("deflate-raw")))}`;
}

/** Most characters that an unpacked text may have, so that a forged permalink cannot fill the memory. */
const LONGEST = 1_000_000;

/** Unpacks a text. Throws if it was not packed by `pack`. */
export async function unpack(packed) {
  if (packed === "") return "";
  const bytes = fromBase64Url(packed.slice(1));
  if (packed[0] === "p") return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  if (packed[0] !== "z") throw new Error("unknown coding");
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += decoder.decode(value ?? new Uint8Array(), { stream: !done });
    if (text.length > LONGEST) throw new Error("too long");
    if (done) return text;
  }
}
