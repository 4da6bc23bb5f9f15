// The last run of the open workflow, shown as if this page had seen it: after a reload, in a second tab, and for a run
// that began before the page.

import { cancelled, failure, lost, notReached } from "./activity.js";
import { api } from "./comfy.js";
import { newsOf } from "./events.js";
import { isOurType, openWorkflow, savedWorkflow } from "./graph.js";
import { askForRun } from "./server.js";
import { settingsOf } from "./saved.js";

/**
 * Keep the store up to date with what this page gets no messages about.
 * @param {ActivityStore} store
 * @returns {(promptId?: string) => Promise<void>} looks for the last run of the open workflow, which is shown if it is not
 *   known yet, or if it is `promptId`; called when another workflow is opened
 */
export function follow(store) {
  const look = async (promptId = "") => {
    if (promptId) unfinished.add(promptId);
    const workflow = openWorkflow();
    const known = store.promptOf(workflow);
    const found = workflow ? await askForRun({ workflow }) : undefined;
    // A run that this page has begun to hear of tells everything by itself.
    if (found && (found.prompt_id !== known || unfinished.has(known)) && store.promptOf(workflow) === known) {
      show(store, workflow, found);
    }
    // A server that was started again knows nothing of it.
    if (found === null && unfinished.delete(known)) store.stop(workflow, new Set(), lost);
    if (workflow === openWorkflow()) store.compare(workflow, settingsOf(savedWorkflow()));
  };
  // Every page is told when the queue gets longer or shorter.
  api.addEventListener("status", () => void look());
  api.addEventListener("reconnected", () => {
    for (const promptId of store.prompts()) unfinished.add(promptId); // of which messages can have been missed
    void look();
  });
  api.addEventListener("graphChanged", (event) => {
    const saved = /** @type {CustomEvent} */ (event).detail;
    store.compare(openWorkflow(), settingsOf(saved));
  });
  return look;
}

/** Runs of which only the beginning was shown, as far as this page knows. */
const unfinished = new Set();

/**
 * @param {ActivityStore} store
 * @param {string} workflow
 * @param {RunPayload} run
 */
function show(store, workflow, run) {
  const { prompt_id, outcome, activities, outputs, failed_node, failed_type, message } = run;
  store.begin(workflow, prompt_id, settingsOf(run.workflow));
  for (const { node, prompt_id: _, ...activity } of activities) store.update(workflow, node, { activity });
  for (const { node, output } of outputs) {
    const news = newsOf(output);
    if (news) store.update(workflow, node, news);
  }
  unfinished.delete(prompt_id);
  if (outcome === "running") unfinished.add(prompt_id);
  const done = new Set(outputs.map(({ node }) => node));
  if (outcome === "cancelled") store.stop(workflow, done, cancelled);
  if (outcome === "failed") {
    store.stop(workflow, done, notReached);
    if (failed_node && isOurType(failed_type)) store.update(workflow, failed_node, { activity: failure(message ?? "") });
  }
  if (outcome === "success") {
    store.finish(workflow, new Set([...activities, ...outputs].map(({ node }) => node)));
  }
}
