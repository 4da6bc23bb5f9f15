// The chip on each sampler: how fast it runs, against this machine's history without our nodes, and how long it takes.

import { againstText, OF_ONE_RUN, wonBackText } from "./against.js";
import { showsBadges } from "./badges.js";
import { measureBaseline, STEPS } from "./baseline.js";
import { addElement, app, attempt, drawOnTop, hasElement, removeElement } from "./comfy.js";
import { allNodes, nodeAt, openWorkflow, prefixOf, typeOf } from "./graph.js";
import { createButton, createElement } from "./elements.js";
import { draw, isFar } from "./overlay.js";
import { number } from "./said.js";
import { jobOf, SpeedHistory } from "./speed_history.js";
import { secondsPerStep, secondsPerStepOfHalves } from "./timeline.js";
import { words } from "./words.js";

const WIDGET = "$$paceline-chip";
const HEIGHT = 24;

/** @typedef {{seconds: number, job: Job, once: boolean}} Uncompared with nothing, or with one run only */

/** @type {Set<Promise<string>>} prompts that only measure a baseline; one can be over before the server has answered which it is */
const measurements = new Set();

/**
 * What chips say where nodes do not show them: when the canvas is zoomed out, and on subgraph nodes.
 * @param {Map<string, {workflow: string, text: string}>} texts by execution id
 */
function drawChips(texts) {
  const { canvas } = app;
  drawOnTop((context) => {
    const prefix = canvas.graph ? prefixOf(canvas.graph) : undefined;
    if (prefix === undefined || !showsBadges()) return;
    const far = isFar();
    for (const [id, { workflow, text }] of texts) {
      if (workflow !== openWorkflow() || !id.startsWith(prefix)) continue;
      const [first, ...rest] = id.slice(prefix.length).split(":");
      const node = canvas.graph?.nodes.find((candidate) => String(candidate.id) === first);
      // Above the badge of a subgraph node, which stands in the row below.
      if (node && (rest.length || far)) draw(context, node, { state: "", text }, canvas.ds.scale, rest.length ? 1 : 0);
    }
  });
}

/**
 * @param {Timeline} timeline
 * @param {ActivityStore} store
 * @returns {() => void} shows again what chips have said in the open workflow, or takes them away: after it was loaded, and
 *   when badges are switched on or off
 */
export function startChips(timeline, store) {
  /** @type {Map<string, {workflow: string, text: string}>} */
  const texts = new Map();
  drawChips(texts);
  const history = new SpeedHistory();
  /** @type {Map<string, Promise<Job | null>>} by prompt and node */
  const jobs = new Map();
  /** @type {WeakMap<LGraphNode, HTMLElement>} */
  const chips = new WeakMap();

  timeline.addEventListener("change", async () => {
    const run = timeline.current;
    if (!run?.parts.length) texts.clear();
    const parts = run?.parts.filter(({ kind }) => kind === "samplingRun") ?? [];
    for (const part of run ? parts : []) {
      if (secondsPerStep(part) === null || !run) continue;
      const name = `${run.promptId} ${part.node}`;
      const known = jobs.get(name) ?? jobOf(run.promptId, part.node);
      jobs.set(name, known);
      const job = await known;
      const seconds = secondsPerStep(part) ?? 0; // with the steps that were done while the server was asked
      const text = await chipText(part, seconds, job, history, run.over, store.idle(run.workflow));
      if (run.over && job && !job.techniques) {
        await history.keep(job.key, name, secondsPerStepOfHalves(part));
        await renewCompared(job.key, run.promptId);
      }
      part.chip = run.ours ? text : "";
      if (run.over && job?.techniques && !store.idle(run.workflow)) {
        const off = await history.times(job.key);
        noteWonBack(run, part, seconds, off);
        if (off.length <= OF_ONE_RUN) uncompared.set(part, { seconds, job, once: off.length > 0 });
      }
      if (run.over) timeline.keep();
      if (!answered.has(run.promptId)) show(run.workflow, part);
    }
  });

  /** @type {Map<Part, Uncompared>} */
  const uncompared = new Map();

  /** @type {Set<string>} prompts that measured a baseline: the chip says what it was measured for, not how fast they were */
  const answered = new Set();

  /**
   * Say again how fast a sampler was, now that there is a baseline.
   * @param {string} key of the job
   * @param {string} promptId of the run that gave it: where a chip asked for it, that chip is shown in its place
   */
  const renewCompared = async (key, promptId) => {
    const asked = (await Promise.all(measurements)).includes(promptId);
    for (const [part, { seconds, job }] of uncompared) {
      if (job.key !== key) continue;
      uncompared.delete(part);
      part.chip = await chipText(part, seconds, job, history, true);
      const run = timeline.runs.find(({ parts }) => parts.includes(part));
      if (run) noteWonBack(run, part, seconds, await history.times(key));
      if (!run || !asked) continue;
      answered.add(promptId);
      show(run.workflow, part);
    }
  };

  /**
   * @param {string} workflow that the run is of
   * @param {Part} part
   */
  const show = (workflow, part) => {
    const { node: id, chip, expected } = part;
    if (!chip) return; // a workflow without our nodes
    // What was expected stands in the place of the comparison: both have no room in a node.
    const text = expected ? `${chip.split(" · ")[0]} · ${expected}` : chip;
    texts.set(id, { workflow, text });
    app.canvas?.setDirty(true, false);
    const node = workflow === openWorkflow() ? nodeAt(id) : undefined;
    if (!node || !showsBadges()) return;
    const missing = expected ? undefined : uncompared.get(part);
    const title = `${chip}\n${words("offMeans")}`; // a narrow node cuts it
    const said = createElement("span", { textContent: text, title });
    chipOf(node, chips).replaceChildren(said, ...(missing ? [measureButton(id, missing)] : []));
  };

  return () => {
    if (!showsBadges()) for (const node of allNodes()) removeElement(node, WIDGET);
    for (const { workflow, parts } of timeline.runs.filter((run) => run.workflow === openWorkflow())) {
      for (const part of parts.filter(({ chip, node, type }) => chip && typeOf(node) === type)) show(workflow, part);
    }
  };
}

/**
 * @param {string} sampler execution id
 * @param {Uncompared} uncompared
 * @returns {HTMLButtonElement} measures the same without our nodes
 */
function measureButton(sampler, { seconds, once }) {
  const time = ` (${timeText(STEPS * seconds)})`;
  const button = createButton(words("measure"), async () => {
    button.disabled = true;
    const measurement = measureBaseline(sampler);
    measurements.add(measurement.catch(() => ""));
    button.disabled = await attempt(() => measurement);
  });
  button.title = words("measure") + time;
  if (!once) button.append(createElement("span", { textContent: time }));
  return button;
}

/**
 * @param {Part} part
 * @param {number} seconds of a step
 * @param {Job | null} job
 * @param {SpeedHistory} history
 * @param {boolean} over
 * @param {boolean} [idle] whether none of our nodes did anything
 * @returns {Promise<string>} e.g. "3.1 it/s · 1.6x against off · 14 s left"
 */
async function chipText({ steps, total }, seconds, job, history, over, idle = false) {
  const rate = seconds < 1 ? `${number(1 / seconds, "#.3g")} it/s` : `${number(seconds, "#.3g")} s/it`;
  const off = job ? await history.times(job.key) : [];
  const left = over || steps.length >= total ? [] : [`${Math.ceil((total - steps.length) * seconds)} s ${words("left")}`];
  if (job && !job.techniques) return [rate, words("off"), ...left].join(" · ");
  if (idle) return [rate, words("noneActive"), ...left].join(" · ");
  const against = off.length ? againstText(off, seconds) : words("noBaseline");
  return [rate, against, ...left].join(" · ");
}

/**
 * Say of a sampler for which something was compiled when that pays.
 * @param {TimedRun} run
 * @param {Part} part
 * @param {number} seconds of a step
 * @param {number[]} off seconds of a step without our nodes
 */
function noteWonBack({ parts }, part, seconds, off) {
  const before = parts[parts.indexOf(part) - 1];
  if (before?.kind === "compiling") part.wonBack = wonBackText(off, seconds, before.end - before.start, part.total);
}

/**
 * @param {LGraphNode} node
 * @param {WeakMap<LGraphNode, HTMLElement>} chips
 */
function chipOf(node, chips) {
  const element = chips.get(node) ?? createElement("output", { className: "paceline-chip" });
  if (!hasElement(node, WIDGET)) {
    addElement(node, WIDGET, element, { margin: 4, getMinHeight: () => HEIGHT, getMaxHeight: () => HEIGHT });
    app.canvas?.setDirty(true, true);
  }
  chips.set(node, element);
  return element;
}

/**
 * @param {number} seconds
 * @returns {string} e.g. "about 4 min"
 */
export function timeText(seconds) {
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : [3600, "h"];
  return `${words("about")} ${number(Math.max(1, Math.round(seconds / size)))} ${unit}`;
}
