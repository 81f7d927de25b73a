// Comma-separated values, as RFC 4180 has them.

function cell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as csv. The columns are the keys of all rows in the order in which they come first. */
export function csv(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return `${lines.map((line) => line.map(cell).join(",")).join("\r\n")}\r\n`;
}
