// The measured trial that follows an insertion: what is not faster is taken out again, and one sentence says what is left.

import { app, tell } from "./comfy.js";
import { showDialog } from "./dialog.js";
import { createBox, createButton, createElement } from "./elements.js";
import { asOneStep } from "./graph.js";
import { takeOut } from "./insert.js";
import { outcomeWords } from "./trial_words.js";
import { measure, next, sceneOf } from "./trial.js";
import { openPrompt } from "./prompt.js";
import { remember } from "./trial_memory.js";
import { words } from "./words.js";

/** @typedef {{item: Inserted, scene: Scene}} Measurable */

/**
 * Ask whether to measure what was inserted, and do so.
 * @param {Inserted[]} inserted
 * @param {string} choice
 */
export async function offerTrial(inserted, choice) {
  const prompt = await openPrompt();
  /** @type {Measurable[]} */
  const measurable = [];
  /** @type {string[]} */
  const untried = [];
  for (const item of inserted.filter(({ nodes }) => nodes.length)) {
    const scene = sceneOf(prompt, item, choice);
    const { why_not } = await next(scene, []);
    if (why_not) untried.push(`${item.nodes.map((node) => node.getTitle()).join(", ")}. ${why_not}`);
    else measurable.push({ item, scene });
  }
  if (!measurable.length) {
    if (untried.length) tell("info", words("trialImpossible"), untried.join("\n"));
    return;
  }
  const text = createElement("p", { textContent: words("trialOffer"), role: "status" });
  const list = createElement("ol");
  const bar = createElement("progress", { hidden: true, max: 1, ariaLabel: words("trialMeasuring") });
  const content = createBox("paceline-trial", text, bar, list);
  content.append(...untried.map((line) => createElement("small", {}, `${words("trialImpossible")} ${line}`)));
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
      if (name !== "AbortError") text.after(createElement("small", { textContent: message }));
      const keep = createButton(words("keep"), () => dialog.close());
      row.replaceChildren(undo(), keep);
      keep.focus();
    }
    bar.hidden = true;
  }

  /**
   * @param {Inserted} item
   * @param {Scene} scene
   * @returns {Promise<TrialState>} the last one
   */
  async function trial({ wire, nodes }, scene) {
    const nodeOf = (/** @type {string} */ id) => nodes.find((node) => wire.prefix + node.id === id);
    /** @type {Finding[]} */
    const findings = [];
    /** @type {LGraphNode[]} */
    const losers = [];
    let told = 0;
    try {
      for (;;) {
        const state = await next(scene, findings);
        for (const { node: id, kept, verdict } of state.judged.slice(told)) {
          const node = nodeOf(id);
          if (node && !kept) losers.push(node);
          const found = `${node?.getTitle()}: ${verdict}`;
          const textContent = kept ? found : `${found} ${words("trialLoser")}`;
          const line = createElement("li", { textContent });
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
