// The command "Paceline: report": what every Paceline node of the open workflow did in its last run.

import { activityLines, colourOf, offAs, shownActivity, stateText } from "./activity.js";
import { signOf } from "./badge.js";
import { createButton, createElement, showDialog } from "../frontend/elements.js";
import { nodeAt, openWorkflow, ourNodes } from "../frontend/graph.js";
import { words, wordsOf } from "../frontend/language.js";

/** @typedef {{title: string, state: string, colour: string, said: string, lines: string[]}} Row state, its colour and what it is called: "" where there is none */

/**
 * @param {ActivityStore} store
 * @returns {Row[]} one for each of our nodes
 */
function reportRows(store) {
  return ourNodes().map(({ id, node }) => {
    const activity = shownActivity(store.entry(openWorkflow(), id), node);
    // Optimization Report, for one, runs and has nothing to say about itself.
    const state = activity?.state ?? (store.tookPart(openWorkflow(), id) ? "ran" : "unknown");
    return {
      title: `${node.getTitle()} (#${id})`,
      state,
      colour: activity ? colourOf(activity) : state,
      said: activity || !offAs(node) ? stateText({ title: activity?.title ?? "", state }) : wordsOf(offAs(node)),
      lines: activity ? activityLines(activity) : [],
    };
  });
}

/**
 * @param {ActivityStore} store
 * @returns {Row[]} how fast each sampler of the open workflow was in its last run
 */
function speedRows(store) {
  return store.entries(openWorkflow()).flatMap(({ node: id, chip }) => {
    const node = chip && nodeAt(id);
    return node ? [{ title: `${node.getTitle()} (#${id})`, state: "", colour: "", said: "", lines: chip.lines }] : [];
  });
}

/** @param {ActivityStore} store */
export function openReport(store) {
  const rows = [...speedRows(store), ...reportRows(store)];
  const list = createElement("dl");
  for (const row of rows) {
    list.append(createElement("dt", {}, row.title));
    if (row.state) {
      const textContent = `${signOf(row.state)} ${row.said}`;
      const state = createElement("dd", { textContent, className: "paceline-report-state" });
      state.dataset.state = row.colour;
      list.append(state);
    }
    list.append(...row.lines.map((line) => createElement("dd", {}, createElement("bdi", {}, line))));
  }
  const text = rows.map(({ title, said, lines }) => [said ? `${title}: ${said}` : title, ...lines].join("\n  ")).join("\n");
  const copy = createButton(words("copy"), async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = words("copied");
  });
  copy.disabled = !navigator.clipboard; // browsers offer it to secure pages only: https or localhost
  const close = createButton(words("close"), () => dialog.close());
  close.autofocus = true;
  const content = rows.length ? list : createElement("p", {}, words("reportEmpty"));
  const dialog = showDialog(words("reportTitle"), content, [copy, close]);
}
