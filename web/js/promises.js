// What was expected of a workflow when nodes were kept, beside what its next run was: that run is the test.

import { nodeAt, openWorkflow } from "./graph.js";
import { Kept } from "./kept.js";
import { number } from "./said.js";
import { secondsPerStep } from "./timeline.js";
import { words } from "./words.js";

/** @typedef {{when: number, steps: number[], samplers: Record<string, {seconds: number, total: number}>, nodes: string[]}} Promised */

/** Seconds of all steps: of less their messages tell nothing, as some reach the page together. */
const SHORTEST = 0.1;

/** @type {Kept<Promised>} by workflow */
const kept = new Kept("Paceline.Expected", 50);

/**
 * @param {TimedRun} run
 * @returns {Promised["samplers"]} seconds of all steps of its samplers, by execution id
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
 * Remember what is expected of the next run of a workflow.
 * @param {string} workflow
 * @param {number[]} steps how many times faster they get, at least, likely and at most
 * @param {TimedRun} before the run without the nodes
 * @param {string[]} nodes execution ids of those that were inserted
 */
export async function expectOf(workflow, steps, before, nodes) {
  await kept.store(workflow, { when: Date.now(), steps, samplers: samplersOf(before), nodes });
}

/**
 * Say of each run for which something was expected whether it came true.
 * @param {Timeline} timeline
 */
export function testPromises(timeline) {
  timeline.addEventListener("change", async () => {
    const run = timeline.current;
    if (!run?.over || !run.workflow || run.expected !== undefined) return;
    const promised = (await kept.load())[run.workflow];
    if (!promised || run.when < promised.when || run.expected !== undefined) return;
    run.expected = tested(run, promised);
    if (!run.expected) return;
    for (const part of run.parts) if (part.node in promised.samplers) part.expected = run.expected;
    timeline.keep();
    timeline.changed();
  });
}

/**
 * @param {TimedRun} run
 * @param {Promised} promised
 * @returns {string} "" where it did something else (other steps, without the nodes, or stopped), or was too short to tell
 */
function tested(run, { steps, samplers, nodes }) {
  const now = samplersOf(run);
  const ids = Object.keys(samplers);
  const alike = ids.length > 0 && ids.every((id) => now[id]?.total === samplers[id].total);
  const sum = (/** @type {Promised["samplers"]} */ of) => ids.reduce((seconds, id) => seconds + of[id].seconds, 0);
  if (!alike || sum(now) < SHORTEST || run.workflow !== openWorkflow() || !nodes.every((id) => nodeAt(id))) return "";
  const [low, likely, high] = steps.map((times) => number(times, "#.2g"));
  const was = number(sum(samplers) / sum(now), ".2f");
  return words("expectedWas").replace("%e", likely).replace("%l", low).replace("%h", high).replace("%w", was);
}
