// "Slower than last week?": what each ordinary run took goes to the server, which keeps it and says whether it was quicker.

import { app, attempt, onMessage } from "../frontend/comfy.js";
import { createBox, createButton, createElement } from "../frontend/elements.js";
import { ask } from "../frontend/server.js";
import { secondsByKind, secondsByNode, secondsPerStepOfHalves } from "./timeline.js";
import { words } from "../frontend/language.js";

/** Served by service/outcomes.py. */
const ROUTE = "/paceline/outcomes";

export const KEEP_SETTING = "Paceline.KeepOutcomes";

/** @returns {boolean} whether the user lets runs be kept */
function keepsOutcomes() {
  return app.extensionManager.setting.get(KEEP_SETTING) !== false;
}

/**
 * Tell the server of each run that comes to its end, and the tab "Speed" what it answers.
 * @param {Timeline} timeline which listens already: a run is over there when it is told of here
 */
export function keepOutcomes(timeline) {
  onMessage("execution_success", async ({ prompt_id }) => {
    const run = timeline.current;
    if (!run?.parts.length || run.promptId !== prompt_id || !keepsOutcomes()) return;
    const seconds = secondsByKind(run);
    const nodes = [...new Set(run.parts.map(({ node }) => node))];
    // What a sampler loads is moved to the device; a loader reads a file.
    const loaded = run.parts.some(({ kind, again }) => kind === "loading" && again === undefined);
    const again = (run.parts.find((part) => part.again)?.again ?? "").slice(0, 500);
    const sampled = run.parts.filter(({ kind, steps }) => kind === "samplingRun" && steps.length > 1);
    const steps = Object.fromEntries(sampled.map((part) => [part.node, secondsPerStepOfHalves(part)]));
    const ended = { prompt_id, seconds, nodes, loaded, again, parts: secondsByNode(run), steps };
    /** @type {{slower: Told | null} | null} whether it is slower than it was */
    const answer = await ask(ROUTE, ended).catch(() => null); // it can wait for the next
    if (!answer?.slower) return;
    run.slower = answer.slower;
    timeline.keep();
    timeline.changed();
  });
}

/**
 * @param {string} name of the setting
 * @param {(kept: boolean) => void} set
 * @param {boolean} value whether runs are kept
 * @returns {HTMLElement} the setting's control: a switch, what can be done with the runs that are kept, and how many they are
 */
export function renderOutcomes(name, set, value) {
  const keeps = createElement("input", { type: "checkbox", checked: value, ariaLabel: name });
  keeps.addEventListener("change", () => set(keeps.checked));
  const count = createElement("output", { ariaLive: "polite", textContent: "…" });
  /** @type {KeptRuns} */
  let kept = { runs: [] };
  const save = createButton(words("outcomesExport"), () => {
    const text = new Blob([JSON.stringify(kept.runs, null, 1)], { type: "application/json" });
    const href = URL.createObjectURL(text);
    createElement("a", { href, download: "paceline-runs.json" }).click();
    URL.revokeObjectURL(href);
  });
  const clear = createButton(words("outcomesDelete"), () => void attempt(async () => show(await ask(ROUTE, undefined, "DELETE"))));

  /** @param {KeptRuns} found */
  function show(found) {
    kept = found;
    count.textContent = "";
    save.textContent = `${words("outcomesExport")} (${kept.runs.length})`;
    save.disabled = clear.disabled = kept.runs.length === 0;
  }

  save.disabled = clear.disabled = true;
  ask(ROUTE).then(show, () => {
    count.textContent = words("cacheUnknown");
  });
  return createBox("paceline-outcomes", keeps, count, save, clear);
}
