// What was expected of a workflow when nodes were kept, beside what its next run was: that run is the test.

import { nodeAt, openPrompt, openWorkflow } from "../frontend/graph.js";
import { number } from "../badges/headlines.js";
import { samplingsOf } from "../frontend/server.js";
import { secondsPerStep } from "../speed/timeline.js";
import { words } from "../frontend/language.js";

/**
 * @typedef {{seconds: number, total: number, job?: string}} Sampled seconds of all steps, how many, and what was sampled
 * @typedef {{when: number, steps: number[], samplers: Record<string, Sampled>, nodes: string[]}} Promised
 */

/** Seconds of all steps: of less their messages tell nothing, as some reach the page together. */
const SHORTEST = 0.1;

/** A computed step that takes so many times as long as before tells of another load. */
const BUSY = 1.2;

/** Where the browser keeps what is expected of the newest workflows. */
const KEPT = "paceline.expected";
const MOST = 50;

/** @returns {Record<string, Promised>} by workflow */
function promises() {
  return JSON.parse(localStorage.getItem(KEPT) ?? "{}");
}

/**
 * @param {TimedRun} run
 * @returns {Promised["samplers"]} those that have sampled, by execution id
 */
function samplersOf({ parts }) {
  const sampled = parts.filter(({ kind }) => kind === "samplingRun");
  return Object.fromEntries(
    sampled.flatMap((part) => {
      const each = secondsPerStep(part);
      return each === null ? [] : [[part.node, { seconds: each * part.total, total: part.total }]];
    }),
  );
}

/**
 * @param {Promised["samplers"]} samplers that are told what they sample: something else also where other nodes of ours take part
 * @param {Parameters<typeof samplingsOf>[0]} asked
 */
async function nameJobs(samplers, asked) {
  const known = await samplingsOf(asked);
  for (const [id, one] of Object.entries(samplers)) if (known[id]) one.job = `${known[id].work} ${known[id].techniques}`;
}

/**
 * Remember what is expected of the next run of a workflow.
 * @param {string} workflow
 * @param {number[]} steps how many times faster they get, at least, likely and at most
 * @param {TimedRun} before the run without the nodes
 * @param {string[]} nodes execution ids of those that were inserted
 */
export async function expectOf(workflow, steps, before, nodes) {
  const when = Date.now();
  const samplers = samplersOf(before);
  await nameJobs(samplers, { prompt: await openPrompt() });
  const { [workflow]: _, ...others } = promises();
  const newest = Object.entries({ ...others, [workflow]: { when, steps, samplers, nodes } }).slice(-MOST);
  localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(newest)));
}

/**
 * Say of each run for which something was expected whether it came true.
 * @param {Timeline} timeline
 * @param {ActivityStore} store
 */
export function testPromises(timeline, store) {
  timeline.addEventListener("change", async () => {
    const run = timeline.current;
    if (!run?.over || !run.workflow || run.expected !== undefined) return;
    const promised = promises()[run.workflow];
    if (!promised || run.when < promised.when) return;
    const now = samplersOf(run);
    await nameJobs(now, { prompt_id: run.promptId });
    if (run.expected !== undefined) return; // another change has tested it meanwhile
    const [long, short] = store.idle(run.workflow) ? ["", ""] : tested(run, now, promised, computedShare(store, run.workflow, promised.nodes));
    run.expected = long;
    if (!long) return;
    for (const part of run.parts) if (part.node in promised.samplers) part.expected = short;
    timeline.keep();
    timeline.changed();
  });
}

/**
 * @param {TimedRun} run
 * @param {Promised["samplers"]} now what it has sampled
 * @param {Promised} promised
 * @param {number | null} share of the evaluations that was computed; null where none of the nodes leaves any out
 * @returns {[string, string]} all of it, and what has room in a node; "" where it did something else (another size, other
 *   steps, without the nodes, or stopped), or was too short to tell
 */
function tested(run, now, { steps, samplers, nodes }, share) {
  const ids = Object.keys(samplers);
  const alike = ids.length > 0 && ids.every((id) => now[id]?.total === samplers[id].total && now[id].job === samplers[id].job);
  const sum = (/** @type {Promised["samplers"]} */ of) => ids.reduce((seconds, id) => seconds + of[id].seconds, 0);
  if (!alike || sum(now) < SHORTEST || run.workflow !== openWorkflow() || !nodes.every((id) => nodeAt(id))) return ["", ""];
  const [low, likely, high] = steps.map((times) => number(times, "#.2g"));
  const times = sum(samplers) / sum(now);
  // What is left out makes no computed step slower: another load does.
  const busy = share !== null && 1 / times > BUSY * share;
  const was = `${number(times, ".2f")}x`;
  const say = (/** @type {string} */ expected) => words(busy ? "expectedBusy" : "expectedWas").replace("%e", expected).replace("%w", was);
  return [say(`${likely}x (${low}–${high}x)`), say(`${likely}x`)];
}

/**
 * @param {ActivityStore} store
 * @param {string} workflow
 * @param {string[]} nodes execution ids
 * @returns {number | null} share of the evaluations that was computed, where nodes count them
 */
function computedShare(store, workflow, nodes) {
  const counts = nodes.map((id) => store.entry(workflow, id)?.activity?.counts ?? {});
  const sum = (/** @type {string} */ name) => counts.reduce((all, count) => all + (count[name] ?? 0), 0);
  return sum("evaluations") ? sum("computed") / sum("evaluations") : null;
}
