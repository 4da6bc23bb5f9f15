// The chip on each sampler: how fast it runs, against kept runs without our nodes, and how long it takes.

import { showsBadges } from "../badges/badges.js";
import { Shown } from "../badges/in_nodes.js";
import { createElement } from "../frontend/elements.js";
import { nodeAt } from "../frontend/graph.js";
import { number } from "../badges/headlines.js";
import { sampledIn, testPromise } from "../faster/expected.js";
import { samplingsOf } from "../frontend/server.js";
import { secondsPerStep } from "./timeline.js";
import { words } from "../frontend/language.js";

const HEIGHT = 24;

/** @param {ActivityStore} store */
export function createChips(store) {
  return new Shown(store, {
    widget: "$$paceline-chip",
    size: { margin: 4, getMinHeight: () => HEIGHT, getMaxHeight: () => HEIGHT },
    find: nodeAt,
    pick: ({ chip }) => (chip && showsBadges() ? chip : undefined),
    create: () => {
      const element = createElement("output", { className: "paceline-chip" });
      const show = (/** @type {NonNullable<Entry["chip"]>} */ { text, lines }) => {
        const title = [...lines, words("offMeans")].join("\n"); // a narrow node cuts the text
        element.replaceChildren(createElement("span", { textContent: text, title }));
      };
      return { element, show };
    },
  });
}

/**
 * Say of each run how fast its samplers are, while it goes on and at its end.
 * @param {Timeline} timeline
 * @param {ActivityStore} store
 */
export function watchSamplers(timeline, store) {
  /** @type {WeakMap<TimedRun, Promise<Samplings>>} what the server says of the samplers of runs */
  const asked = new WeakMap();

  timeline.addEventListener("change", async () => {
    const run = timeline.current;
    const sampled = run ? sampledIn(run) : [];
    if (!run || !sampled.length) return;
    if (!asked.has(run)) asked.set(run, samplingsOf(run.promptId));
    const samplings = (await asked.get(run)) ?? {};
    const told = run.expected !== undefined;
    if (run.over && run.workflow && !told) testPromise(run, samplings, store);
    for (const part of sampled) say(run, part, samplings[part.node], store.idle(run.workflow));
    tell(run);
    if (run.over) timeline.keep();
    if (run.expected && !told) timeline.changed(); // to the tab too
  });

  /** @param {TimedRun} run */
  const tell = ({ workflow, parts }) => {
    for (const { node, chip, expected, wonBack } of parts) {
      if (!chip) continue; // a workflow without our nodes
      // What was expected stands in the place of the comparison: both have no room in a node.
      const text = expected ? `${expected} · ${chip.split(" · ").at(-1)}` : chip;
      store.update(workflow, node, { chip: { text, lines: wonBack ? [chip, wonBack] : [chip] } });
    }
  };
  timeline.runs.forEach(tell); // those of before the page was loaded again
}

/**
 * @param {Part} part
 * @param {number} seconds of a step
 * @param {Sampling | undefined} sampling
 * @param {boolean} over
 * @param {boolean} idle whether none of our nodes did anything
 * @returns {string} e.g. "1.6x against plain · 14 s left · 3.1 it/s", as a narrow node cuts the end
 */
function chipText({ steps, total }, seconds, sampling, over, idle) {
  const rate = seconds < 1 ? `${number(1 / seconds, "#.3g")} it/s` : `${number(seconds, "#.3g")} s/it`;
  const left = over || steps.length >= total ? [] : [`${Math.ceil((total - steps.length) * seconds)} s ${words("left")}`];
  let against = sampling?.off ? againstText(sampling.off, seconds) : words("noBaseline");
  if (idle) against = words("noneActive");
  if (sampling && !sampling.techniques) against = words("off");
  return [against, ...left, rate].join(" · ");
}

/**
 * Say of a sampler how fast it is, and when what was compiled for it pays.
 * @param {TimedRun} run
 * @param {Part} part
 * @param {Sampling | undefined} sampling
 * @param {boolean} idle whether none of our nodes did anything
 */
function say({ parts, ours, over }, part, sampling, idle) {
  const seconds = secondsPerStep(part) ?? 0;
  part.chip = ours ? chipText(part, seconds, sampling, over, idle) : "";
  const before = parts[parts.indexOf(part) - 1];
  if (!over || !sampling?.techniques || idle || before?.kind !== "compiling") return;
  part.wonBack = wonBackText(sampling.off, seconds, before.end - before.start, part.total);
}

/** Half of a range in logarithms from which on it says nothing. */
const TOO_WIDE = Math.log(1.3);

/**
 * @param {StepTime} off a step without our nodes
 * @param {number} seconds of a step now
 * @returns {string} e.g. "1.62x against plain"; "about 1.6x against plain" with one run to compare with; between which two
 *   numbers it is, "0.87–1.12x against plain", where one more run without our nodes could be as fast; that there are too
 *   few, where these numbers are far apart
 */
export function againstText(off, seconds) {
  const mean = Math.log(off.seconds / seconds);
  const { within } = off;
  const ratio = (/** @type {number} */ log, form = ".2f") => number(Math.exp(log), form);
  const against = words("againstOff");
  if (within === null) return `${words("about")} ${ratio(mean, "#.2g")}x ${against}`;
  if (Math.abs(mean) > within) return `${ratio(mean)}x ${against}`;
  if (within > TOO_WIDE) return words("tooFewRuns");
  return `${ratio(mean - within)}–${ratio(mean + within)}x ${against}`;
}

/**
 * @param {StepTime | null} off a step without our nodes
 * @param {number} seconds of a step now
 * @param {number} once seconds that compiling took
 * @param {number} steps of a run
 * @returns {string} from how many runs on compiling was worth it; "" where one more run without could be as fast
 */
export function wonBackText(off, seconds, once, steps) {
  if (!off || Math.log(off.seconds / seconds) <= (off.within ?? 0)) return "";
  const runs = Math.ceil(once / (steps * (off.seconds - seconds)));
  return words("wonBack").replace("%s", number(once, ".0f")).replace("%n", `${off.within === null ? "~" : ""}${runs}`);
}
