// The settings of a sweep as checkboxes and ranges, in the place of its text. The text is what is saved and sent.

import { addElement, app, makeRoom } from "./comfy.js";
import { createBox, createButton, createElement } from "./elements.js";
import { comfyClassOf, ourNodes } from "./graph.js";
import { allSettings, settingOf } from "./grid_settings.js";
import { countCells, readRows, spread, writeRows } from "./grid_text.js";
import { expectedPerStep, timeText, wholeTime } from "./sweep_time.js";
import { words } from "./words.js";

const TYPE = "PacelineBenchmarkSweep";
const ROW_HEIGHT = 26;

/** @typedef {import("./grid_text.js").Row} Row */
/** @typedef {{value: string, hidden?: boolean, options: {hidden?: boolean}, callback?: (value: string) => void}} TextWidget */

/**
 * @param {LGraphNode} node that was made just now
 * @param {(node: LGraphNode) => number | null} secondsPerStep of both sides together, from its last run
 */
export function addGridForm(node, secondsPerStep) {
  if (comfyClassOf(node) !== TYPE) return;
  const text = /** @type {TextWidget | undefined} */ (
    /** @type {unknown} */ (node.widgets?.find(({ name }) => name === "grid"))
  );
  if (!text) return;
  const form = new GridForm(node, text, secondsPerStep);
  if (!addElement(node, "$$paceline-grid", form.element, { margin: 8, getMinHeight: () => form.height })) return;
  const search = node.widgets?.find(({ name }) => name === "search");
  const chosen = search?.callback;
  if (search) search.callback = (...value) => (chosen?.apply(search, value), form.refresh());
  const { onConfigure } = node;
  node.onConfigure = function (...saved) {
    onConfigure?.apply(this, saved);
    form.refresh();
  };
  forms.set(node, form);
  form.refresh();
}

/** @type {WeakMap<LGraphNode, GridForm>} */
const forms = new WeakMap();

/** Show the forms of the open workflow again, in another language. */
export function renewGridForms() {
  for (const { node } of ourNodes()) forms.get(node)?.renew();
}

class GridForm {
  element = createBox("paceline-grid");
  #asText = false;
  #shown = "";
  #lines = 3;
  #total = createElement("output");
  /** @type {number | null} seconds of a step, before a cell was measured */
  #expected = null;

  /**
   * @param {LGraphNode} node
   * @param {TextWidget} text
   * @param {(node: LGraphNode) => number | null} secondsPerStep
   */
  constructor(node, text, secondsPerStep) {
    this.node = node;
    this.text = text;
    this.secondsPerStep = secondsPerStep;
    // What was typed into the text, and another number of steps or runs.
    this.element.addEventListener("pointerenter", () => this.refresh());
  }

  get height() {
    return this.#lines * ROW_HEIGHT + 16;
  }

  refresh() {
    this.text.hidden = this.text.options.hidden = true; // in the canvas renderer and in Nodes 2.0
    const value = String(this.text.value ?? "");
    if (value !== this.#shown || !this.element.childElementCount) this.#draw(value);
    this.#showTotal();
  }

  /** Show the same again, in another language. */
  renew() {
    this.#shown = "";
    this.refresh();
  }

  /** @param {string} value */
  #draw(value) {
    this.#shown = value;
    const rows = readRows(value);
    const swap = createButton(words(this.#asText ? "asForm" : "asText"), () => {
      this.#asText = !this.#asText;
      this.#shown = "";
      this.refresh();
      this.#fit();
    });
    const bar = createBox("paceline-toolbar", this.#adder(rows), swap);
    const lines = this.#asText ? [this.#area(value)] : rows.map((row) => this.#row(row, rows));
    this.element.replaceChildren(...lines, bar, this.#total);
    this.#lines = 3 + (this.#asText ? 4 : rows.reduce((sum, { name }) => sum + (this.#wide(name) ? 2 : 1), 0));
    this.#fit();
  }

  /** @param {string} value */
  #area(value) {
    const area = createElement("textarea", { value, spellcheck: false, rows: 5, ariaLabel: words("asText") });
    area.addEventListener("keydown", (event) => event.stopPropagation()); // the canvas has shortcuts
    area.addEventListener("input", () => {
      this.#shown = area.value; // not drawn anew while it is typed
      this.#set(area.value);
    });
    return area;
  }

  /** @param {string} value */
  #set(value) {
    this.text.value = value;
    this.text.callback?.(value);
    this.refresh();
  }

  /** @param {string} name */
  #wide(name) {
    const options = settingOf(name)?.options;
    return !options || options.join("").length + 4 * options.length > 36;
  }

  #fit() {
    makeRoom(this.node);
    app.canvas?.setDirty(true, true);
  }

  #showTotal() {
    // A node that is named by its title in one row and by its id in another is one node.
    const rows = readRows(this.#shown).map(({ name, values }) => ({ name: settingOf(name)?.name ?? name, values }));
    const widget = (/** @type {string} */ name) => this.node.widgets?.find((one) => one.name === name)?.value;
    const search = widget("search");
    const cells = search === "optuna" ? Number(widget("trials")) : countCells(rows);
    const measured = this.secondsPerStep(this.node);
    const resized = rows.some(({ name }) => name === "size" || name === "batch"); // which takes another time
    if (measured === null && cells !== null && !resized) void this.#expect();
    const seconds = measured ?? (resized ? null : this.#expected);
    const time = seconds === null || cells === null ? words("timeUnknown") : timeText(wholeTime(this.node, cells, seconds));
    this.#total.textContent = cells === null ? words("rangeNeedsSearch") : `${cells} ${words("cells")} · ${time}`;
  }

  async #expect() {
    const expected = await expectedPerStep(this.node);
    if (expected === this.#expected) return;
    this.#expected = expected;
    this.#showTotal();
  }

  /** @param {Row[]} rows */
  #write(rows) {
    this.#set(writeRows(rows));
  }

  /**
   * @param {Row} row
   * @param {Row[]} rows
   */
  #row(row, rows) {
    const setting = settingOf(row.name);
    const remove = createButton("×", () => this.#write(rows.filter((each) => each !== row)));
    remove.ariaLabel = `${words("remove")} ${titleOf(row.name)}`;
    const change = (/** @type {string[]} */ values) => this.#write(rows.map((each) => (each === row ? { ...row, values } : each)));
    const choices = setting?.options ? checkboxes(row, setting.options, change) : numbers(row, setting, change);
    const legend = createElement("legend", {}, titleOf(row.name));
    return createElement("fieldset", { className: "paceline-grid-row" }, legend, choices, remove);
  }

  /** @param {Row[]} rows */
  #adder(rows) {
    const select = createElement("select", { ariaLabel: words("addSetting") }, new Option(words("addSetting"), ""));
    const used = new Set(rows.map(({ name }) => settingOf(name)?.name));
    const free = allSettings().filter(({ name }) => !used.has(name));
    for (const title of new Set(free.map((setting) => setting.title))) {
      const options = free.filter((setting) => setting.title === title).map(({ name, input }) => new Option(input || `${title}: ${words("onOff")}`, name));
      select.append(createElement("optgroup", { label: title }, ...options));
    }
    select.addEventListener("change", () => {
      const setting = settingOf(select.value);
      if (!setting) return;
      const { name, options, low, high, whole } = setting;
      this.#write([...rows, { name, values: options ? options.slice(0, 2) : spread(low, Math.min(high, low + 1), 2, whole) }]);
    });
    return select;
  }
}

/**
 * @param {string} name
 * @returns {string} e.g. "Apply ToMe · ratio"
 */
function titleOf(name) {
  const setting = settingOf(name);
  return setting ? [setting.title, setting.input].filter(Boolean).join(" · ") : name;
}

/**
 * @param {Row} row
 * @param {string[]} options
 * @param {(values: string[]) => void} change
 */
function checkboxes({ values }, options, change) {
  const all = new Set([...options, ...values]); // values that are not offered (another size) stay
  const labels = [...all].map((option) => {
    const box = createElement("input", { type: "checkbox", checked: values.includes(option) });
    box.addEventListener("change", () => {
      change([...all].filter((each) => (each === option ? box.checked : values.includes(each))));
    });
    return createElement("label", {}, box, option);
  });
  return createBox("paceline-grid-values", ...labels);
}

/**
 * @param {Row} row
 * @param {Setting | undefined} setting
 * @param {(values: string[]) => void} change
 */
function numbers({ values }, setting, change) {
  const list = createElement("input", { type: "text", value: values.join(", "), ariaLabel: words("values") });
  list.addEventListener("change", () => change(list.value.split(",").map((value) => value.trim()).filter(Boolean)));
  list.addEventListener("keydown", (event) => event.stopPropagation()); // the canvas has shortcuts
  if (!setting) return createBox("paceline-grid-values", list);
  const known = values.flatMap((value) => value.split("..")).map(Number).filter(Number.isFinite);
  const ends = known.length ? [Math.min(...known), Math.max(...known)] : [setting.low, setting.high];
  const [from, to, count] = [...ends, Math.max(2, values.length)].map((value, index) => {
    const input = createElement("input", { type: "number", value: String(value), step: "any" });
    Object.assign(input, index < 2 ? { min: String(setting.low), max: String(setting.high) } : { min: "1", max: "20" });
    input.ariaLabel = words(index === 0 ? "from" : index === 1 ? "to" : "howMany");
    input.addEventListener("keydown", (event) => event.stopPropagation());
    input.addEventListener("change", () => {
      change(spread(Number(from.value), Number(to.value), Math.min(20, Number(count.value) || 1), setting.whole));
    });
    return input;
  });
  return createBox("paceline-grid-values", list, from, "–", to, "×", count);
}
