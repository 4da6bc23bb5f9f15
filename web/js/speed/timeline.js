// Where the time of each run goes, from ComfyUI's own messages: nothing is measured that would cost time.

import { api, onMessage as on } from "../frontend/comfy.js";
import { openWorkflow, nodeAt, ourNodes, workflowName } from "../frontend/graph.js";
import { askForRun } from "../frontend/server.js";
import { NO_RUN } from "../faster/run_prompt.js";
import { settingsOf } from "../frontend/saved_settings.js";

/** Runs that are kept. */
const MOST = 8;
const KEPT = "paceline.runs";

/** What a node is for, by its type; the first that fits. */
const KINDS = /** @type {const} */ ([
  ["measuring", /^Paceline(Profile|Compare|Benchmark)/],
  ["loading", /load/i],
  ["textEncoding", /textencode|cliptext/i],
  ["controlnet", /controlnet/i],
  ["samplingRun", /sampler/i],
  ["decoding", /vae|decode/i],
  ["saving", /save|preview/i],
]);

/** Tells its listeners ("change" events) about every change. */
export class Timeline extends EventTarget {
  /** @type {TimedRun[]} newest last */
  runs = [];
  #began = 0;

  /** Begin to listen. */
  listen() {
    /** @type {TimedRun[]} */
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    this.runs = kept.filter(({ over }) => over); // of one that goes on, this page has not heard the beginning
    on("execution_start", ({ prompt_id }) => {
      this.#began = performance.now();
      const open = openWorkflow();
      const run = { promptId: prompt_id, workflow: "", name: "", ours: false, when: Date.now(), parts: [], over: false };
      this.runs = [...this.runs, run].slice(-MOST);
      // Another workflow can be open by now than the one that was queued.
      void askForRun(prompt_id).then((found) => {
        run.workflow = found ? (found.workflow.id ?? "") : open; // "" for a prompt without one
        run.ours = found?.workflow.nodes ? settingsOf(found.workflow).size > 0 : ourNodes().length > 0;
        run.name = workflowName(run.workflow);
        if (run.over) this.keep();
        this.changed();
      });
    });
    on("executing", (node) => node != null && this.#begin(String(node)));
    on("progress", (step) => this.#step(step));
    on("paceline.compile", ({ node }) => this.#compile(String(node)));
    on("paceline.loading", (loaded) => this.#load(loaded));
    for (const end of ["execution_success", "execution_error", "execution_interrupted"]) on(end, () => this.#end());
    api.addEventListener("reconnected", () => void this.#ask());
  }

  /** @returns {TimedRun | undefined} the one that goes on, or the last one */
  get current() {
    return this.runs.at(-1);
  }

  #now() {
    return (performance.now() - this.#began) / 1000;
  }

  /** @param {string} node execution id */
  #begin(node) {
    const { current } = this;
    if (!current || current.over) return;
    if (node.startsWith(NO_RUN)) {
      this.runs = this.runs.filter((run) => run !== current); // a measurement, which is no run of the workflow
      this.changed();
      return;
    }
    const now = this.#now();
    const last = current.parts.at(-1);
    if (last) last.end = now;
    const type = String(nodeAt(node)?.type ?? "");
    const kind = KINDS.find(([, pattern]) => pattern.test(type))?.[0] ?? "otherNodes";
    current.parts.push({ kind, node, start: now, end: now, steps: [], total: 0 });
    this.changed();
  }

  /** @param {{node: string, value: number, max: number, prompt_id: string}} step */
  #step({ node, value, max, prompt_id }) {
    const { current } = this;
    const part = current?.parts.at(-1);
    if (!current || !part || current.promptId !== prompt_id || part.node !== String(node)) return;
    part.before ??= value - 1; // the page may be loaded during the run
    if (value - part.before <= part.steps.length) return;
    // Steps that are left out end with the next one: ComfyUI sends one message for all that end at once.
    while (part.steps.length < value - part.before) part.steps.push(this.#now());
    part.total = max;
    part.end = this.#now();
    this.changed();
  }

  /**
   * Compiling goes on inside of a sampler: its time is told apart there.
   * @param {string} node that compiles
   */
  #compile(node) {
    const part = this.current?.parts.at(-1);
    if (!part || this.current?.over) return;
    const now = this.#now();
    if (part.kind === "compiling") part.end = now;
    else if (part.kind === "samplingRun" && !part.steps.length) {
      part.end = now;
      const compiling = { kind: "compiling", node, start: part.start, end: now, steps: [], total: 0 };
      this.current?.parts.splice(-1, 1, compiling, { ...part, start: now });
    } else {
      const before = this.current?.parts.at(-2);
      if (before?.kind === "compiling" && !part.steps.length) before.end = part.start = part.end = now;
    }
  }

  /**
   * Weights are loaded inside of a sampler, before its first step: their time is told apart there.
   * @param {LoadingPayload} loaded
   */
  #load({ node, prompt_id, seconds, why }) {
    const { current } = this;
    const part = current?.parts.at(-1);
    if (!current || !part || current.promptId !== prompt_id || part.kind !== "samplingRun" || part.steps.length) return;
    const now = this.#now();
    const start = Math.max(part.start, now - seconds);
    const loading = { kind: "loading", node, start, end: now, steps: [], total: 0, again: why };
    current.parts.splice(-1, 1, { ...part, end: start }, loading, { ...part, start: now, end: now });
    this.changed();
  }

  #end() {
    const last = this.current?.parts.at(-1);
    if (last && !this.current?.over) last.end = this.#now();
    this.#close();
  }

  #close() {
    const { current } = this;
    if (!current || current.over) return;
    current.over = true;
    this.keep();
    this.changed();
  }

  /** The connection was lost: the message of the run's end can have been too. */
  async #ask() {
    const { current } = this;
    if (!current || current.over) return;
    const found = await askForRun(current.promptId);
    if (current === this.current && found !== undefined && !found?.running) this.#close();
  }

  /** Keep what is known of the runs for this page's next load. */
  keep() {
    sessionStorage.setItem(KEPT, JSON.stringify(this.runs));
  }

  /** Let what shows the runs say them again: they are others, or the language is. */
  changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/**
 * @param {Pick<Part, "steps">} part
 * @returns {number | null} seconds of a step: the mean, as steps that are left out count too, of all but the first, in
 *   which things are loaded and built
 */
export function secondsPerStep({ steps }) {
  return steps.length > 1 ? (steps[steps.length - 1] - steps[0]) / (steps.length - 1) : null;
}

/**
 * @param {Pick<Part, "steps">} part
 * @returns {number[]} the same for the first and the second half of the steps; one number where there are too few, and
 *   none of a half whose messages came together
 */
export function secondsPerStepOfHalves({ steps }) {
  const middle = Math.floor(steps.length / 2);
  const halves = middle ? [steps.slice(0, middle + 1), steps.slice(middle)] : [];
  return halves.flatMap((half) => secondsPerStep({ steps: half }) || []);
}

/**
 * @param {TimedRun} run
 * @returns {Record<string, number>} seconds of its nodes, by what they are for
 */
export function secondsByKind({ parts }) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const { kind, start, end } of parts) found[kind] = (found[kind] ?? 0) + Math.max(0, end - start);
  return found;
}

/**
 * @param {TimedRun} run
 * @returns {Record<string, Record<string, number>>} the same by node, of those that took some
 */
export function secondsByNode({ parts }) {
  /** @type {Record<string, Record<string, number>>} */
  const found = {};
  for (const { kind, node, start, end } of parts) {
    if (end - start < 0.005) continue;
    const nodes = (found[kind] ??= {});
    nodes[node] = (nodes[node] ?? 0) + end - start;
  }
  return found;
}
