// The command "Paceline: report": what every Paceline node of the open workflow did in its last run.

import { activityLines, shownActivity, stateText } from "./activity.js";
import { signOf } from "./badge.js";
import { openDialog } from "./dialog.js";
import { nodeAt, openWorkflow, ourNodes } from "./graph.js";
import { words } from "./words.js";

/** @typedef {import("./store.js").ActivityStore} ActivityStore */
/** @typedef {import("./timeline.js").Timeline} Timeline */
/** @typedef {{title: string, state: string, said: string, lines: string[]}} Row state and what it is called: "" where there is none */

/**
 * @param {ActivityStore} store
 * @returns {Row[]} one for each of our nodes
 */
function reportRows(store) {
  return ourNodes().map(({ executionId, node }) => {
    const entry = store.entry(openWorkflow(), executionId);
    const activity = entry?.activity && shownActivity(entry.activity, entry.stale ?? false, node.mode);
    // Optimization Report, for one, runs and has nothing to say about itself.
    const state = activity?.state ?? (store.tookPart(openWorkflow(), executionId) ? "ran" : "unknown");
    return {
      title: `${node.getTitle()} (#${executionId})`,
      state,
      said: stateText({ title: activity?.title ?? "", state }),
      lines: activity ? activityLines(activity) : [],
    };
  });
}

/**
 * @param {Timeline} timeline
 * @returns {Row[]} how fast each sampler of the open workflow was in its last run
 */
function speedRows(timeline) {
  const run = timeline.runs.findLast(({ workflow, parts }) => workflow === openWorkflow() && parts.some(({ chip }) => chip));
  return (run?.parts ?? []).flatMap(({ node: id, chip, wonBack }) => {
    const node = chip ? nodeAt(id) : undefined;
    const lines = [chip, wonBack].flatMap((line) => line || []);
    return node && chip ? [{ title: `${node.getTitle()} (#${id})`, state: "", said: "", lines }] : [];
  });
}

/**
 * @param {ActivityStore} store
 * @param {Timeline} timeline
 */
export function openReport(store, timeline) {
  const rows = [...speedRows(timeline), ...reportRows(store)];
  const list = document.createElement("dl");
  for (const row of rows) {
    const title = Object.assign(document.createElement("dt"), { textContent: row.title });
    list.append(title);
    if (row.state) {
      const textContent = `${signOf(row.state)} ${row.said}`;
      const state = Object.assign(document.createElement("dd"), { textContent, className: "paceline-report-state" });
      state.dataset.state = row.state;
      list.append(state);
    }
    for (const line of row.lines) list.append(Object.assign(document.createElement("dd"), { textContent: line }));
  }
  const empty = Object.assign(document.createElement("p"), { textContent: words("reportEmpty") });
  openDialog({
    title: words("reportTitle"),
    content: rows.length ? list : empty,
    text: rows.map(({ title, said, lines }) => [said ? `${title}: ${said}` : title, ...lines].join("\n  ")).join("\n"),
  });
}

/**
 * @param {ActivityStore} store
 * @param {Timeline} timeline
 * @returns {import("@comfyorg/comfyui-frontend-types").ComfyExtension["commands"] extends (infer C)[] | undefined ? C : never}
 */
export function createReportCommand(store, timeline) {
  return {
    id: "Paceline.Report",
    label: "Paceline: report",
    icon: "pi pi-gauge",
    function: () => openReport(store, timeline),
  };
}
