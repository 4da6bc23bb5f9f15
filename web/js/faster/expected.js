// What was expected of a workflow when nodes were kept, beside what its next run was: that run is the test.

import { nodeAt, openWorkflow } from "../frontend/graph.js";
import { number } from "../badges/headlines.js";
import { words } from "../frontend/language.js";
import { secondsPerStep } from "../speed/timeline.js";

/** @typedef {{steps: number[], totals: Record<string, number>, nodes: string[]}} Promised */

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

/** @param {TimedRun} run */
export function sampledIn({ parts }) {
  return parts.filter((part) => part.kind === "samplingRun" && secondsPerStep(part) !== null);
}

/**
 * Remember what is expected of the next run of a workflow.
 * @param {string} workflow
 * @param {number[]} steps how many times faster they get, at least, likely and at most
 * @param {TimedRun} before the run without the nodes
 * @param {string[]} nodes execution ids of those that were inserted
 */
export function expectOf(workflow, steps, before, nodes) {
  const totals = Object.fromEntries(sampledIn(before).map(({ node, total }) => [node, total]));
  const { [workflow]: _, ...others } = promises();
  const newest = Object.entries({ ...others, [workflow]: { steps, totals, nodes } }).slice(-MOST);
  localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(newest)));
}

/**
 * Say of a run that is over whether what was expected of it came true: all of it, and what has room in a node. Nothing is
 * said where it did something else (another size, other steps, without the nodes), or was too short to tell.
 * @param {TimedRun} run
 * @param {Samplings} samplings what the server says of its samplers
 * @param {ActivityStore} store
 */
export function testPromise(run, samplings, store) {
  run.expected = "";
  const promised = promises()[run.workflow];
  if (!promised?.totals || store.idle(run.workflow) || run.workflow !== openWorkflow()) return;
  const { steps, totals, nodes } = promised;
  const sampled = sampledIn(run).filter(({ node }) => node in totals);
  const alike = sampled.map(({ node, total }) => {
    const { techniques = 0, off = null } = samplings[node] ?? {};
    // With further nodes of ours steps without any are no measure of those that were inserted.
    return total === totals[node] && techniques > 0 && techniques <= nodes.length ? (off?.seconds ?? 0) * total : 0;
  });
  const now = sampled.reduce((sum, part) => sum + (secondsPerStep(part) ?? 0) * part.total, 0);
  const kept = nodes.every((id) => nodeAt(id)?.mode === 0) && alike.length === Object.keys(totals).length;
  if (!kept || !alike.every(Boolean) || now < SHORTEST) return;
  const times = alike.reduce((sum, seconds) => sum + seconds, 0) / now;
  const [low, likely, high] = steps.map((each) => number(each, "#.2g"));
  const counts = nodes.map((id) => store.entry(run.workflow, id)?.activity?.counts ?? {});
  const [all, computed] = ["evaluations", "computed"].map((name) => counts.reduce((sum, count) => sum + (count[name] ?? 0), 0));
  // What is left out makes no computed step slower: another load does.
  const template = words(all && 1 / times > (BUSY * computed) / all ? "expectedBusy" : "expectedWas");
  const say = (/** @type {string} */ expected) => template.replace("%e", expected).replace("%w", `${number(times, ".2f")}x`);
  run.expected = say(`${likely}x (${low}–${high}x)`);
  for (const part of sampled) part.expected = say(`${likely}x`);
}
