// The measured trial that follows an insertion: what is not faster is taken out again, and one sentence says what is left.

import { app } from "./comfy.js";
import { createButton, showDialog } from "./dialog.js";
import { asOneStep } from "./graph.js";
import { takeOut } from "./insert.js";
import { cancelTrial, isGoodEnough, isWorthKeeping, measure, sceneFor } from "./trial.js";
import { remember } from "./trial_memory.js";
import { words } from "./words.js";

/** @typedef {import("./faster.js").Inserted} Inserted */
/** @typedef {import("./payloads").Comparison} Comparison */

const QUICK = { runs: 3, warmup_runs: 1 };

/** Where three rounds are too noisy to tell. */
const MORE = { runs: 9, warmup_runs: 1 };

/**
 * Ask whether to measure what was inserted, and do so.
 * @param {Inserted[]} inserted
 * @param {string} choice
 */
export async function offerTrial(inserted, choice) {
  /** @type {{item: Inserted, scene: import("./trial.js").Scene}[]} */
  const measurable = [];
  for (const item of inserted) {
    const scene = await sceneFor(item);
    if (scene) measurable.push({ item, scene });
  }
  if (!measurable.length) return;
  const content = document.createElement("div");
  content.className = "paceline-trial";
  const text = Object.assign(document.createElement("p"), { textContent: words("trialOffer"), role: "status" });
  const list = document.createElement("ol");
  const bar = Object.assign(document.createElement("progress"), { hidden: true, max: 1 });
  bar.ariaLabel = words("trialMeasuring");
  content.append(text, bar, list);
  const later = createButton(words("trialLater"), () => dialog.close());
  const start = createButton(words("trialStart"), () => void run());
  start.classList.add("paceline-primary");
  const dialog = showDialog(words("trialTitle"), content, [later, start]);
  const row = /** @type {HTMLElement} */ (start.parentElement);

  async function run() {
    row.replaceChildren(createButton(words("cancel"), () => void cancelTrial()));
    bar.hidden = false;
    try {
      for (const { item, scene } of measurable) {
        const outcome = await trial(item, scene);
        show(outcome);
        await remember(item.wire, choice, { kept: outcome.steps, sentence: text.textContent });
      }
    } catch (error) {
      const stopped = /** @type {Error} */ (error).name === "AbortError";
      text.textContent = stopped ? words("trialStopped") : String(/** @type {Error} */ (error).message);
      row.replaceChildren(undo(), createButton(words("keep"), () => dialog.close()));
    }
    bar.hidden = true;
  }

  /**
   * @param {Inserted} item
   * @param {import("./trial.js").Scene} scene
   * @returns {Promise<{best: Comparison | null, compiling: number, steps: import("./payloads").Step[]}>} of all that was
   *   kept, against the plain model
   */
  async function trial({ wire, nodes, steps }, scene) {
    /** @type {string[]} */
    const kept = [];
    /** @type {Inserted["nodes"]} */
    const losers = [];
    let best = null;
    let compiling = 0;
    for (const [index, node] of nodes.entries()) {
      const id = wire.prefix + node.id;
      const name = node.getTitle();
      text.textContent = `${words("trialMeasuring")} ${name} (${index + 1}/${nodes.length})`;
      let found = await measure(scene, kept, [...kept, id], QUICK, (share) => (bar.value = share));
      if (found.comparison.found === "unknown" && isGoodEnough(found.comparison, choice)) {
        const { compiling: before } = found;
        found = await measure(scene, kept, [...kept, id], MORE, (share) => (bar.value = share));
        found.compiling += before;
      }
      const worth = isWorthKeeping(found.comparison, choice);
      const verdict = Object.assign(document.createElement("li"), { textContent: `${name}: ${found.comparison.verdict}` });
      verdict.dataset.state = worth ? "active" : "inactive";
      list.append(verdict);
      if (worth) {
        kept.push(id);
        best = kept.length === 1 ? found.comparison : null;
        compiling += found.compiling;
      } else losers.push(node);
    }
    if (kept.length > 1) {
      text.textContent = words("trialTogether");
      best = (await measure(scene, [], kept, QUICK, (share) => (bar.value = share))).comparison;
    }
    if (losers.length) asOneStep(() => takeOut(losers, wire.name));
    app.canvas.setDirty(true, true);
    return { best, compiling, steps: steps.filter(({ node }) => !losers.some(({ type }) => type === node)) };
  }

  /** @param {{best: Comparison | null, compiling: number}} outcome */
  function show({ best, compiling }) {
    text.className = "paceline-trial-result";
    text.textContent = best ? sentence(best, compiling) : words("trialNothing");
    const done = createButton(best ? words("keep") : words("close"), () => dialog.close());
    done.classList.add("paceline-primary");
    row.replaceChildren(...(best ? [undo()] : []), done);
    done.focus();
  }

  /** @returns {HTMLButtonElement} takes all of it back */
  function undo() {
    return createButton(words("undo"), () => {
      asOneStep(() => {
        for (const { wire, nodes } of inserted) takeOut(nodes.filter((node) => node.graph), wire.name);
      });
      app.canvas.setDirty(true, true);
      dialog.close();
    });
  }
}

/**
 * @param {Comparison} found
 * @param {number} compiling seconds
 * @returns {string} e.g. "1.62x faster, difference 1/14 of a seed change"
 */
function sentence({ speedup, seed_share, quality, seconds, speedup_of, about }, compiling) {
  const parts = [`${speedup.toFixed(2)}x ${words("faster")}`];
  if (quality === "identical") parts.push(words("quality_identical"));
  else if (seed_share) parts.push(words("shareOfSeed").replace("%s", seed_share >= 1 ? seed_share.toFixed(1) : `1/${Math.round(1 / seed_share)}`));
  const saved = (median(seconds.baseline) - median(seconds.optimized)) * (speedup_of === "step" ? Number(about.steps) : 1);
  if (compiling > 1 && saved > 0) {
    const pays = words("paysAfter").replace("%s", compiling.toFixed(0)).replace("%n", String(Math.ceil(compiling / saved)));
    parts.push(pays);
  }
  return parts.join(", ");
}

/**
 * @param {number[]} values
 * @returns {number}
 */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
