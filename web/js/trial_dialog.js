// The measured trial that follows an insertion: what is not faster is taken out again, and one sentence says what is left.

import { app } from "./comfy.js";
import { createButton, showDialog } from "./dialog.js";
import { asOneStep } from "./graph.js";
import { takeOut } from "./insert.js";
import { outcomeWords } from "./trial_words.js";
import { measure, next, sceneOf } from "./trial.js";
import { openPrompt } from "./prompt.js";
import { said } from "./said.js";
import { remember } from "./trial_memory.js";
import { words } from "./words.js";

/** @typedef {import("./faster.js").Inserted} Inserted */
/** @typedef {import("./payloads").TrialState} TrialState */
/** @typedef {{item: Inserted, scene: import("./trial.js").Scene}} Measurable */

/**
 * Ask whether to measure what was inserted, and do so.
 * @param {Inserted[]} inserted
 * @param {string} choice
 */
export async function offerTrial(inserted, choice) {
  const prompt = await openPrompt();
  /** @type {Measurable[]} */
  const measurable = [];
  /** @type {Inserted[]} */
  const others = [];
  for (const item of inserted.filter(({ nodes }) => nodes.length)) {
    const scene = sceneOf(prompt, item, choice);
    if ((await next(scene, [])).measurable) measurable.push({ item, scene });
    else others.push(item);
  }
  const untried = others.flatMap(({ nodes }) => nodes.map((node) => node.getTitle())).join(", ");
  if (!measurable.length) {
    if (untried) app.extensionManager.toast.add({ severity: "info", summary: words("trialImpossible"), detail: untried, life: 9000 });
    return;
  }
  const content = document.createElement("div");
  content.className = "paceline-trial";
  const text = Object.assign(document.createElement("p"), { textContent: words("trialOffer"), role: "status" });
  const list = document.createElement("ol");
  const bar = Object.assign(document.createElement("progress"), { hidden: true, max: 1 });
  bar.ariaLabel = words("trialMeasuring");
  content.append(text, bar, list);
  if (untried) content.append(Object.assign(document.createElement("small"), { textContent: `${words("trialImpossible")} (${untried})` }));
  const later = createButton(words("trialLater"), () => dialog.close());
  const start = createButton(words("trialStart"), () => void run());
  start.classList.add("paceline-primary");
  const dialog = showDialog(words("trialTitle"), content, [later, start]);
  const row = /** @type {HTMLElement} */ (start.parentElement);

  const stop = new AbortController();

  async function run() {
    row.replaceChildren(createButton(words("cancel"), () => stop.abort()));
    bar.hidden = false;
    /** @type {string[]} */
    const sentences = [];
    try {
      for (const { item, scene } of measurable) {
        const outcome = await trial(item, scene);
        const found = outcomeWords(outcome);
        const where = item.wire.receivers.map(({ node }) => node.getTitle()).join(", ");
        sentences.push(measurable.length > 1 ? `${where}: ${found}` : found);
        await remember(scene.prompt, item, choice, outcome);
      }
      show(sentences.join(" · "));
    } catch (error) {
      const { name, message } = /** @type {Error} */ (error);
      text.textContent = words(name === "AbortError" ? "trialStopped" : "trialFailed");
      if (name !== "AbortError") text.after(Object.assign(document.createElement("small"), { textContent: message }));
      const keep = createButton(words("keep"), () => dialog.close());
      row.replaceChildren(undo(), keep);
      keep.focus();
    }
    bar.hidden = true;
  }

  /**
   * @param {Inserted} item
   * @param {import("./trial.js").Scene} scene
   * @returns {Promise<TrialState>} the last one
   */
  async function trial({ wire, nodes }, scene) {
    const nodeOf = (/** @type {string} */ id) => nodes.find((node) => wire.prefix + node.id === id);
    /** @type {import("./trial.js").Finding[]} */
    const findings = [];
    /** @type {import("./graph.js").LGraphNode[]} */
    const losers = [];
    let told = 0;
    try {
      for (;;) {
        const state = await next(scene, findings);
        for (const { node: id, kept, verdict, phrase } of state.judged.slice(told)) {
          const node = nodeOf(id);
          if (node && !kept) losers.push(node);
          const found = `${node?.getTitle()}: ${said(verdict, phrase)}`;
          const textContent = kept ? found : `${found} ${words("trialLoser")}`;
          const line = Object.assign(document.createElement("li"), { textContent });
          line.dataset.state = kept ? "active" : "inactive";
          list.append(line);
        }
        told = state.judged.length;
        if (!state.prompt) return state;
        const place = `${scene.chain.indexOf(state.node) + 1}/${nodes.length}`;
        const doing = state.node && `${words("trialMeasuring")} ${nodeOf(state.node)?.getTitle()} (${place})`;
        text.textContent = doing || words("trialTogether");
        findings.push(await measure(state.prompt, (share) => (bar.value = share), stop.signal));
      }
    } finally {
      if (losers.length) asOneStep(() => takeOut(losers, wire.name)); // also where it is stopped
      app.canvas.setDirty(true, true);
    }
  }

  /** @param {string} result of all that was measured */
  function show(result) {
    text.className = "paceline-trial-result";
    text.textContent = result;
    const left = inserted.some(({ nodes }) => nodes.some((node) => node.graph));
    const done = createButton(left ? words("keep") : words("close"), () => dialog.close());
    done.classList.add("paceline-primary");
    row.replaceChildren(...(left ? [undo()] : []), done);
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
