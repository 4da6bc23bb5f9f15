// What was expected of a workflow when nodes were kept, beside what its next run was: that run is the test.

import { nodeAt, openPrompt, openWorkflow } from "./graph.js";
import { Kept } from "./kept.js";
import { number } from "./said.js";
import { describe, jobOf } from "./speed_history.js";
import { secondsPerStep } from "./timeline.js";
import { words } from "./words.js";

/**
 * @typedef {{seconds: number, total: number, job?: string}} Sampled seconds of all steps, how many, and what was sampled
 * @typedef {{when: number, steps: number[], samplers: Record<string, Sampled>, nodes: string[]}} Promised
 */

/** Seconds of all steps: of less their messages tell nothing, as some reach the page together. */
const SHORTEST = 0.1;

/** @type {Kept<Promised>} by workflow */
const kept = new Kept("Paceline.Expected", 50);

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
 * @param {Job | null} job
 * @returns {string} another one for other samplings, and where other nodes of ours take part
 */
function nameOf(job) {
  return job ? `${job.key} ${job.techniques}` : "";
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
  const [prompt, samplers] = [await openPrompt(), samplersOf(before)];
  for (const [id, one] of Object.entries(samplers)) one.job = nameOf(describe(prompt, id));
  await kept.store(workflow, () => ({ when, steps, samplers, nodes }));
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
    const promised = (await kept.load())[run.workflow];
    if (!promised || run.when < promised.when) return;
    const now = samplersOf(run);
    for (const [id, one] of Object.entries(now)) one.job = nameOf(await jobOf(run.promptId, id));
    if (run.expected !== undefined) return; // another change has tested it meanwhile
    run.expected = store.idle(run.workflow) ? "" : tested(run, now, promised);
    if (!run.expected) return;
    for (const part of run.parts) if (part.node in promised.samplers) part.expected = run.expected;
    timeline.keep();
    timeline.changed();
  });
}

/**
 * @param {TimedRun} run
 * @param {Promised["samplers"]} now what it has sampled
 * @param {Promised} promised
 * @returns {string} "" where it did something else (another size, other steps, without the nodes, or stopped), or was too
 *   short to tell
 */
function tested(run, now, { steps, samplers, nodes }) {
  const ids = Object.keys(samplers);
  const alike = ids.length > 0 && ids.every((id) => now[id]?.total === samplers[id].total && now[id].job === samplers[id].job);
  const sum = (/** @type {Promised["samplers"]} */ of) => ids.reduce((seconds, id) => seconds + of[id].seconds, 0);
  if (!alike || sum(now) < SHORTEST || run.workflow !== openWorkflow() || !nodes.every((id) => nodeAt(id))) return "";
  const [low, likely, high] = steps.map((times) => number(times, "#.2g"));
  const was = number(sum(samplers) / sum(now), ".2f");
  return words("expectedWas").replace("%e", likely).replace("%l", low).replace("%h", high).replace("%w", was);
}
