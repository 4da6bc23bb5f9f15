// The settings that a sweep tries, as lines of text and as rows of a form. workbench/sweep/axes.py is what reads them.

/**
 * One line: `Node.input: value, value`, a node that is switched `on` and `off`, or `size` and `batch`.
 * @typedef {{name: string, values: string[]}} Row
 */

/**
 * @param {string} text
 * @returns {Row[]} lines that can be read; comments are left out
 */
export function readRows(text) {
  return text.split("\n").flatMap((line) => {
    const [name, ...rest] = line.split("#")[0].split(":");
    const values = rest.join(":").split(",").map((value) => value.trim()).filter(Boolean);
    return name.trim() && rest.length ? [{ name: name.trim(), values }] : [];
  });
}

/** @param {Row[]} rows */
export function writeRows(rows) {
  return rows.filter(({ values }) => values.length).map(({ name, values }) => `${name}: ${values.join(", ")}\n`).join("");
}

/**
 * @param {Row[]} rows
 * @returns {number | null} cells of a grid; null where a row is a range, which only a search goes through
 */
export function countCells(rows) {
  const used = rows.filter(({ values }) => values.length);
  if (used.some(({ values }) => values.some((value) => value.includes("..")))) return null;
  /** @type {Set<string>} */
  let cells = new Set([""]);
  const most = used.reduce((product, { values }) => product * values.length, 1);
  if (most > 10_000) return most;
  for (const { name, values } of used) {
    cells = new Set([...cells].flatMap((cell) => values.map((value) => `${cell}${name}: ${value}\n`)));
  }
  // A node that is off in a cell takes its settings with it.
  return new Set([...cells].map(withoutAbsent)).size;
}

/** @param {string} cell */
function withoutAbsent(cell) {
  const lines = cell.split("\n");
  const off = lines.filter((line) => /^[^.]+: off$/.test(line)).map((line) => `${line.split(":")[0]}.`);
  return lines.filter((line) => !off.some((node) => line.startsWith(node))).join("\n");
}

/**
 * @param {number} from
 * @param {number} to
 * @param {number} count
 * @param {boolean} whole
 * @returns {string[]} so many values from one to the other, both included
 */
export function spread(from, to, count, whole) {
  const values = Array.from({ length: count }, (_, at) => from + ((to - from) * at) / Math.max(1, count - 1));
  return [...new Set(values.map((value) => String(whole ? Math.round(value) : Number(value.toPrecision(4)))))];
}
