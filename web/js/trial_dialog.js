// The measured trial that follows an insertion: what is not faster is taken out again, and one sentence says what is left.

import { app, tell } from "./comfy.js";
import { showDialog } from "./dialog.js";
import { createBox, createButton, createElement } from "./elements.js";
import { asOneStep } from "./graph.js";
import { takeOut } from "./insert.js";
import { number } from "./said.js";
import { applyTrade, findSearch, runSearch } from "./search.js";
import { describe, SpeedHistory } from "./speed_history.js";
import { createTrades, gainWords } from "./trades.js";
import { outcomeWords } from "./trial_words.js";
import { measure, next, sceneOf } from "./trial.js";
import { openPrompt } from "./prompt.js";
import { remember } from "./trial_memory.js";
import { words } from "./words.js";

/** @typedef {{item: Inserted, scene: Scene, search: Search | null}} Measurable */
/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./search.js").Beside} Beside */

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
    const search = await findSearch(prompt, item, choice);
    const scene = sceneOf(prompt, item, choice, search?.state.own);
    const { why_not } = scene.chain.length ? await next(scene, []) : { why_not: "" };
    if (why_not) untried.push(`${item.nodes.map((node) => node.getTitle()).join(", ")}. ${why_not}`);
    else measurable.push({ item, scene, search });
  }
  if (!measurable.length) {
    if (untried.length) tell("info", words("trialImpossible"), untried.join("\n"));
    return;
  }
  const text = createElement("p", { textContent: [words("trialOffer"), ...(await timeWords(measurable))].join(" "), role: "status" });
  const list = createElement("ol");
  const bar = createElement("progress", { hidden: true, max: 1, ariaLabel: words("trialMeasuring") });
  const found = createBox("paceline-trial-trades");
  const content = createBox("paceline-trial", text, bar, list, found);
  /** @type {Map<Inserted, Trade>} what Keep changes */
  const chosen = new Map();
  /** @type {Map<Inserted, string>} what was chosen among trades by hand, "" for none of them */
  const picked = new Map();
  content.append(...untried.map((line) => createElement("small", {}, `${words("trialImpossible")} ${line}`)));
  const later = createButton(words("trialLater"), () => dialog.close());
  const start = createButton(words("trialStart"), () => void run());
  start.classList.add("paceline-primary");
  const dialog = showDialog(words("trialTitle"), content, [later, start]);
  const row = /** @type {HTMLElement} */ (start.parentElement);

  const stop = new AbortController();

  /** @type {(() => string)[]} what is known at the end; some of it goes with what is chosen */
  const sentences = [];
  let ended = false;
  const sayResult = () => void (text.textContent = sentences.map((sentence) => sentence()).join(" · "));

  async function run() {
    row.replaceChildren(createButton(words("cancel"), () => stop.abort()));
    bar.hidden = false;
    try {
      for (const { item, scene, search } of measurable) {
        const box = createBox("");
        found.append(box);
        if (search && scene.chain.length) await searchOn(item, search, { most: search.state.first }, box);
        const outcome = scene.chain.length ? await trial(item, scene) : null;
        const where = item.wire.receivers.map(({ node }) => node.getTitle()).join(", ");
        if (outcome && (outcome.best || !search)) {
          const said = outcomeWords(outcome);
          sentences.push(() => (measurable.length > 1 ? `${where}: ${said}` : said));
        }
        if (search) {
          const kept = (outcome?.judged ?? []).filter((one) => one.kept).map(({ node }) => node);
          const trades = await searchOn(item, search, { kept, faster: outcome?.best?.speedup ?? 1 }, box);
          asOneStep(() => takeOut(ownOf(item, search), item.wire.name)); // what holds of it is a trade
          sentences.push(() => {
            const trade = chosen.get(item);
            if (trade) return gainWords(trade.gain);
            return words(trades.length ? "searchKeep" : "searchNothing");
          });
        } else if (outcome) await remember(scene.prompt, item, choice, outcome);
      }
      show();
    } catch (error) {
      const { name, message } = /** @type {Error} */ (error);
      text.textContent = words(name === "AbortError" ? "trialStopped" : "trialFailed");
      if (name !== "AbortError") text.after(createElement("small", { textContent: message }));
      const keep = createKeep(words("keep"));
      row.replaceChildren(undo(), keep);
      keep.focus();
    }
    bar.hidden = true;
  }

  /**
   * Try other settings, and show what was found so far: that can also be kept where it is stopped.
   * @param {Inserted} item
   * @param {Search} search
   * @param {Beside} beside
   * @param {HTMLElement} box
   * @returns {Promise<Trade[]>}
   */
  async function searchOn(item, search, beside, box) {
    const choose = (/** @type {Trade | undefined} */ trade, /** @type {string | undefined} */ byHand = undefined) => {
      if (byHand !== undefined) picked.set(item, byHand);
      if (trade) chosen.set(item, trade);
      else chosen.delete(item);
      if (ended) sayResult();
    };
    /** @type {Trade[]} */
    let trades = [];
    let shown = "";
    const tell = (/** @type {SearchState} */ state) => {
      text.textContent = `${words("searching")} ${state.label}`;
      bar.value = state.pictures / search.state.most;
      trades = state.trades;
      const found = JSON.stringify([trades, state.note]);
      if (found === shown) return;
      shown = found;
      if (!trades.length) choose(undefined);
      const note = state.note ? [createElement("small", { textContent: state.note })] : [];
      const focused = box.contains(document.activeElement);
      box.replaceChildren(...(trades.length ? [createTrades(trades, picked.get(item), choose)] : []), ...note);
      if (focused) /** @type {HTMLElement | null} */ (box.querySelector("input:checked"))?.focus();
    };
    await runSearch(search, beside, tell, stop.signal);
    return trades;
  }

  /**
   * @param {string} label
   * @returns {HTMLButtonElement} closes the dialog, and changes what was chosen
   */
  function createKeep(label) {
    return createButton(label, () => {
      for (const { item, search } of measurable) {
        const trade = chosen.get(item);
        if (!trade || !search) continue;
        asOneStep(() => {
          takeOut(ownOf(item, search), item.wire.name);
          applyTrade(item, trade);
        });
      }
      app.canvas.setDirty(true, true);
      dialog.close();
    });
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

  /** Say the result of all that was measured. */
  function show() {
    ended = true;
    text.className = "paceline-trial-result";
    sayResult();
    const left = chosen.size > 0 || inserted.some(({ nodes }) => nodes.some((node) => node.graph));
    const done = createKeep(left ? words("keep") : words("close"));
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

/**
 * @param {Inserted} item
 * @param {Search} search
 * @returns {LGraphNode[]} the nodes that the search tries itself, as far as they are there
 */
function ownOf({ wire, nodes }, { state }) {
  return nodes.filter((node) => node.graph && state.own.includes(wire.prefix + node.id));
}

/**
 * @param {Measurable[]} measurable
 * @returns {Promise<string[]>} how long the search takes at most, where there is one
 */
async function timeWords(measurable) {
  const history = new SpeedHistory();
  let [pictures, seconds] = [0, 0];
  for (const { item, scene, search } of measurable) {
    if (!search) continue;
    const { wire } = item;
    const step = await history.of(describe(scene.prompt, wire.prefix + wire.receivers[0].node.id).key);
    pictures += search.state.most;
    seconds += step === null ? NaN : step * search.state.steps * search.state.most;
  }
  if (!pictures) return [];
  const time = Number.isFinite(seconds) ? [words("searchTime").replace("%s", number(seconds, ".0f"))] : [];
  return [words("searchTakes").replace("%n", String(pictures)), ...time];
}
