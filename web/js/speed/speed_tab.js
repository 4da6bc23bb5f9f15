// The tab "Speed" of the bottom panel: a bar for each run, and the last profile.

import { app } from "../frontend/comfy.js";
import { createBox, createButton, createElement } from "../frontend/elements.js";
import { openWorkflow, findNode } from "../frontend/graph.js";
import { createBar, profileParts } from "./speed_bars.js";
import { said } from "../badges/headlines.js";
import { direction, language, words } from "../frontend/language.js";

/**
 * @param {Timeline} timeline
 * @param {ActivityStore} store
 * @returns {NonNullable<ComfyExtension["bottomPanelTabs"]>[number]}
 */
export function createSpeedTab(timeline, store) {
  /** Of the panel that is shown: the frontend makes another one each time it opens the tab. */
  let shown = new AbortController();
  return {
    id: "paceline.speed",
    title: "Speed",
    titleKey: "paceline.speedTab", // the frontend says it in the language of the page
    type: "custom",
    render(container) {
      const bars = createBox("paceline-bars");
      const faster = createButton(words("faster_title"), () => void app.extensionManager.command.execute("Paceline.MakeFaster"));
      container.style.height = "100%"; // else it grows beyond the panel, which hides what does not fit
      container.replaceChildren(createElement("div", { className: "paceline-speed", dir: direction() }, faster, bars));
      let waiting = false;
      const draw = () => {
        waiting = false;
        if (bars.isConnected) bars.replaceChildren(...content(timeline, store));
      };
      const later = () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(draw);
      };
      shown = new AbortController();
      for (const source of [timeline, store]) source.addEventListener("change", later, { signal: shown.signal });
      later();
    },
    destroy: () => shown.abort(),
  };
}

/**
 * @param {Timeline} timeline
 * @param {ActivityStore} store
 */
function content(timeline, store) {
  const runs = timeline.runs.filter(({ parts }) => parts.length).reverse();
  const profiled = store.entries(openWorkflow()).filter((entry) => entry.profile).at(-1);
  const node = profiled && findNode(profiled.node);
  if (!runs.length && !node) return [createElement("p", { textContent: words("speedEmpty") })];
  const bars = runs.map((run) => createBar(titleOf(run), piecesOf(run), notesOf(run)));
  return [...(profiled?.profile && node ? profileParts(profiled.profile) : []), ...bars];
}

/** @param {TimedRun} run */
function titleOf({ name, when }) {
  return [name, new Date(when).toLocaleTimeString(language())].filter(Boolean).join(" · ");
}

/** @param {TimedRun} run */
function notesOf({ parts, expected, slower }) {
  const loaded = parts.flatMap(({ again, wonBack }) => [again || [], wonBack || []].flat());
  return [...loaded, ...(expected ? [expected] : []), ...(slower ? [said(slower)] : [])];
}

/** @param {TimedRun} run */
function piecesOf({ parts }) {
  return parts.map(({ kind, start, end, steps }) => {
    const seconds = end - start;
    return { kind, seconds, marks: steps.slice(0, -1).map((step) => (step - start) / seconds) };
  });
}
