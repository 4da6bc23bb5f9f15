// ComfyUI's websocket messages, turned into entries of the store.

import { cancelled, failure, lost, notReached } from "./activity.js";
import { api, onMessage as on } from "../frontend/comfy.js";
import { isOurType, openWorkflow, savedWorkflow } from "../frontend/graph.js";
import { askForRun, failureOf } from "../frontend/server.js";
import { settingsOf } from "../frontend/saved_settings.js";

/**
 * @param {string} promptId
 * @param {ActivityStore} store
 */
function newRun(promptId, store) {
  // Resolves to the id of the workflow ("" if no page made it); the messages themselves do not name it.
  const workflow = askForRun(promptId).then((found) => {
    const id = found?.workflow.id ?? "";
    if (found && id) store.begin(id, promptId, settingsOf(found.workflow));
    return id;
  });
  /** @type {Set<string>} nodes that took part */
  const participants = new Set();
  /** @type {Set<string>} those that have handed over something to show */
  const done = new Set();
  return { promptId, workflow, participants, done, over: false };
}

/** @typedef {ReturnType<typeof newRun>} Run */

/**
 * @param {NodeOutput | null | undefined} output of a node
 * @returns {Omit<Entry, "node"> | null} what of it is shown; null if nothing is
 */
function newsOf(output) {
  const { paceline_comparison: comparison, paceline_report, paceline_sweep, paceline_profile } = output ?? {};
  const [report, sweep, profile] = [paceline_report?.[0], paceline_sweep?.[0], paceline_profile?.[0]];
  const news = { comparison, report, sweep, profile };
  return Object.values(news).some(Boolean) ? news : null;
}

/**
 * Compare what our nodes are set to with what they were set to in their last run.
 * @param {ActivityStore} store
 * @param {SavedWorkflow} [workflow] the open one
 */
export function compareSettings(store, workflow = savedWorkflow()) {
  store.compare(openWorkflow(), settingsOf(workflow));
}

/**
 * Start to listen. Messages are handled in the order in which they arrive.
 * @param {ActivityStore} store
 */
export function listen(store) {
  /** @type {Run | null} */
  let run = null;
  let queue = Promise.resolve();
  /**
   * Do something about the run that a message is about, once its workflow is known. Messages about any other run than
   * the one that goes on are late, or not for this page.
   * @type {(promptId: string, action: (workflow: string, run: Run) => void) => void}
   */
  const later = (promptId, action) => {
    run ??= newRun(promptId, store); // the page was loaded during the run
    const current = run;
    if (current.promptId !== promptId || current.over) return;
    queue = queue.then(async () => action(await current.workflow, current));
  };
  /** @type {(promptId: string, node: string, news: Omit<Entry, "node">) => void} */
  const update = (promptId, node, news) => {
    later(promptId, (workflow, current) => {
      current.participants.add(node);
      store.update(workflow, node, news);
    });
  };
  /** @type {typeof later} at the end of the run */
  const end = (promptId, action) => {
    later(promptId, (workflow, current) => {
      action(workflow, current);
      compareSettings(store);
    });
    if (run?.promptId === promptId) run.over = true;
  };

  on("execution_start", ({ prompt_id }) => {
    run = newRun(prompt_id, store);
  });
  on("execution_cached", ({ prompt_id, nodes }) => {
    later(prompt_id, (_, { participants }) => {
      for (const node of nodes) participants.add(node);
    });
  });
  on("executing", (node) => {
    if (node != null && run) later(run.promptId, (_, { participants }) => participants.add(String(node)));
  });
  // Of run/reporting.py and compilation/comfy_env.py in optimizers/in_comfyui, and of Benchmark Sweep.
  for (const event of ["paceline.activity", "paceline.compile"]) {
    on(event, (/** @type {ActivityPayload} */ { node, prompt_id, ...activity }) => update(prompt_id, node, { activity }));
  }
  on("paceline.sweep", (/** @type {SweepPayload} */ { node, prompt_id, sweep }) => {
    update(prompt_id, node, { sweep });
  });
  on("executed", (/** @type {{node: string, prompt_id: string, output: NodeOutput | null}} */ message) => {
    const news = newsOf(message.output ?? {});
    if (!news) return;
    later(message.prompt_id, (_, { done }) => done.add(message.node));
    update(message.prompt_id, message.node, news);
  });
  on("execution_success", ({ prompt_id }) => {
    end(prompt_id, (workflow, { participants }) => store.finish(workflow, participants));
  });
  on("execution_error", ({ prompt_id, node_id, node_type, ...failed }) => {
    end(prompt_id, (workflow, { done }) => {
      store.stop(workflow, done, notReached);
      if (isOurType(node_type)) store.update(workflow, node_id, { activity: failure(failureOf(failed)) });
    });
  });
  on("execution_interrupted", ({ prompt_id }) => {
    end(prompt_id, (workflow, { done }) => store.stop(workflow, done, cancelled));
  });
  api.addEventListener("reconnected", async () => {
    const current = run; // the message of its end can have been lost with the connection
    if (!current || current.over) return;
    const found = await askForRun(current.promptId);
    if (found === undefined || found?.running) return;
    end(current.promptId, (workflow, { done }) => store.stop(workflow, done, lost));
  });
  api.addEventListener("graphChanged", (event) => compareSettings(store, /** @type {CustomEvent} */ (event).detail));
}
