// The command "Paceline: report": what every Paceline node of the open workflow did in its last run.

import { activityLines, shownActivity } from "./activity.js";
import { signOf } from "./badge.js";
import { openDialog } from "./dialog.js";
import { openWorkflow, ourNodes } from "./graph.js";
import { stateWords, words } from "./words.js";

/** @typedef {import("./store.js").ActivityStore} ActivityStore */
/** @typedef {{title: string, state: string, lines: string[]}} Row */

/**
 * @param {ActivityStore} store
 * @returns {Row[]} one for each of our nodes
 */
function reportRows(store) {
  return ourNodes().map(({ executionId, node }) => {
    const entry = store.entry(openWorkflow(), executionId);
    const activity = entry?.activity && shownActivity(entry.activity, entry.stale ?? false, node.mode);
    return {
      title: `${node.getTitle()} (#${executionId})`,
      // Optimization Report, for one, runs and has nothing to say about itself.
      state: activity?.state ?? (store.tookPart(openWorkflow(), executionId) ? "ran" : "unknown"),
      lines: activity ? activityLines(activity) : [],
    };
  });
}

/** @param {ActivityStore} store */
export function openReport(store) {
  const rows = reportRows(store);
  const list = document.createElement("dl");
  for (const row of rows) {
    const title = Object.assign(document.createElement("dt"), { textContent: row.title });
    const state = Object.assign(document.createElement("dd"), {
      textContent: `${signOf(row.state)} ${stateWords(row.state)}`,
      className: "paceline-report-state",
    });
    state.dataset.state = row.state;
    list.append(title, state);
    for (const line of row.lines) list.append(Object.assign(document.createElement("dd"), { textContent: line }));
  }
  const empty = Object.assign(document.createElement("p"), { textContent: words("reportEmpty") });
  openDialog({
    title: words("reportTitle"),
    content: rows.length ? list : empty,
    text: rows.map((row) => [`${row.title}: ${stateWords(row.state)}`, ...row.lines].join("\n  ")).join("\n"),
  });
}

/**
 * @param {ActivityStore} store
 * @returns {import("@comfyorg/comfyui-frontend-types").ComfyExtension["commands"] extends (infer C)[] | undefined ? C : never}
 */
export function createReportCommand(store) {
  return {
    id: "Paceline.Report",
    label: "Paceline: report",
    icon: "pi pi-gauge",
    function: () => openReport(store),
  };
}
