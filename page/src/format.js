// Numbers as people read them. Every function takes a plain number in the unit of its name and returns text. No line breaks between a
// number and its unit: the space between them is U+00A0.

const LARGE = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

const FIXED = [];

/** A formatter of so many decimals. They are kept, because making one takes longer than using it. */
function fixed(decimals) {
  FIXED[decimals] ??= new Intl.NumberFormat("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return FIXED[decimals];
}

/** Rounds to `digits` significant digits, without an exponent: 14.515 → "14.5", 1234.5 → "1,235". */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  // 0.99996 counts as 1.000, so that rounding does not add a digit.
  const magnitude = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits)))));
  const decimals = Math.max(0, Math.min(8, digits - 1 - magnitude));
  return fixed(decimals).format(value);
}

/** A tick of an axis: as `number`, without zeros at its end. */
export function tick(value, digits = 3) {
  return number(value, digits)
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "");
}

/** A whole number with thousands separators. */
export function whole(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return fixed(0).format(Math.round(value));
}

/** A time in microseconds, in the unit that suits it. */
export function micros(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) < 999.5) return `${number(value, digits)}\u00a0µs`;
  if (Math.abs(value) < 999.5e3) return `${number(value / 1e3, digits)}\u00a0ms`;
  return `${number(value / 1e6, digits)}\u00a0s`;
}

/** A time in milliseconds, in the unit that suits it. */
export function millis(value, digits = 3) {
  return value === null || value === undefined ? "–" : micros(value * 1e3, digits);
}

/** A share of one, in percent. */
export function percent(share, digits = 1) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${(share * 100).toFixed(digits)}\u00a0%`;
}

/** A count, rate or size with a decimal prefix: 1.03e12 and "FLOP" → "1.03 TFLOP". */
export function scaled(value, unit, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [size, prefix] of LARGE) {
    if (Math.abs(value) >= size * 0.9995) return `${number(value / size, digits)}\u00a0${prefix}${unit}`;
  }
  return `${number(value, digits)}\u00a0${unit}`;
}

/** Bytes in GiB, as GPU memory is counted, with at most two decimals. */
export function gib(bytes, digits = 3) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return "–";
  const value = bytes / 2 ** 30;
  return `${Math.abs(value) < 1 ? value.toFixed(2) : number(value, digits)}\u00a0GiB`;
}

/** Parameters in billions. */
export function billions(count) {
  return count < 1e9 ? `${number(count / 1e6, 3)}\u00a0M` : `${number(count / 1e9, 3)}\u00a0B`;
}

/** Words joined as in a sentence: "a", "a and b", "a, b and c". */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
