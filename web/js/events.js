// ComfyUI's websocket messages, turned into entries of the store.

import { compileActivity, failure } from "./activity.js";
import { api } from "./comfy.js";
import { isOurType } from "./graph.js";

/** @typedef {import("./store.js").ActivityStore} ActivityStore */
/** @typedef {import("./payloads").ActivityPayload} ActivityPayload */
/** @typedef {import("./payloads").CompilePayload} CompilePayload */
/** @typedef {import("./payloads").NodeOutput} NodeOutput */

/** The websocket events of reporting.py and compilation/comfy_env.py in optimizers/hosts/comfyui, and of nodes/sweep_view.py. */
const ACTIVITY = "paceline.activity";
const COMPILE = "paceline.compile";
const SWEEP = "paceline.sweep";

/** One run of a workflow: which workflow it is, which nodes took part, and whether it has ended. */
class Run {
  /** @type {Set<string>} */
  participants = new Set();
  over = false;

  /** @param {string} promptId */
  constructor(promptId) {
    this.promptId = promptId;
    /** Resolves to the id of the workflow; the messages themselves do not name it. */
    this.workflow = workflowOf(promptId);
  }
}

/**
 * Ask the server which workflow a prompt was made from.
 * @param {string} promptId
 * @returns {Promise<string>} "" if the prompt was not made by a frontend
 */
async function workflowOf(promptId) {
  try {
    const response = await api.fetchApi(`/jobs/${encodeURIComponent(promptId)}`);
    const job = response.ok ? await response.json() : {};
    return String(job.workflow_id ?? "");
  } catch {
    return ""; // offline: the messages stop as well
  }
}

/**
 * @param {NodeOutput | null | undefined} output of a node
 * @returns {Omit<import("./store.js").Entry, "node"> | null} what of it is shown; null if nothing is
 */
export function newsOf(output) {
  const { paceline_comparison, paceline_report, paceline_steps, paceline_sweep, paceline_profile } = output ?? {};
  const report = paceline_report?.[0], sweep = paceline_sweep?.[0];
  const profile = paceline_profile?.[0];
  const news = { comparison: paceline_comparison, report, steps: paceline_steps, sweep, profile };
  return Object.values(news).some(Boolean) ? news : null;
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
   * @template Detail
   * @param {string} type
   * @param {(detail: Detail) => void} handler
   */
  const on = (type, handler) => {
    // The cast: our own events are not among those that the frontend's types list.
    /** @type {EventTarget} */ (api).addEventListener(type, (event) => handler(/** @type {CustomEvent} */ (event).detail));
  };
  /**
   * Do something about the run that a message is about, once its workflow is known. Messages about any other run than
   * the one that goes on are late, or not for this page.
   * @param {string} promptId
   * @param {(workflow: string, run: Run) => void} action
   */
  const later = (promptId, action) => {
    run ??= new Run(promptId); // the page was loaded during the run
    const current = run;
    if (current.promptId !== promptId || current.over) return;
    queue = queue.then(async () => action(await current.workflow, current));
  };
  /**
   * @param {string} promptId
   * @param {string} node execution id
   * @param {Omit<import("./store.js").Entry, "node">} news
   */
  const update = (promptId, node, news) => {
    later(promptId, (workflow, current) => {
      current.participants.add(node);
      store.update(workflow, node, news);
    });
  };
  /**
   * @param {string} promptId
   * @param {(workflow: string, run: Run) => void} action
   */
  const end = (promptId, action) => {
    later(promptId, action);
    if (run?.promptId === promptId) run.over = true;
  };

  on("execution_start", ({ prompt_id }) => {
    run = new Run(prompt_id);
  });
  on("execution_cached", ({ prompt_id, nodes }) => {
    later(prompt_id, (_, { participants }) => nodes.forEach((/** @type {string} */ node) => participants.add(node)));
  });
  on("executing", (node) => {
    if (node != null && run) later(run.promptId, (_, { participants }) => participants.add(String(node)));
  });
  on(ACTIVITY, (/** @type {ActivityPayload} */ { node, prompt_id, ...activity }) => {
    update(prompt_id, node, { activity });
  });
  on(COMPILE, (/** @type {CompilePayload} */ payload) => {
    update(payload.prompt_id, payload.node, { activity: compileActivity(payload) });
  });
  on(SWEEP, (/** @type {import("./payloads").SweepPayload} */ { node, prompt_id, sweep }) => {
    update(prompt_id, node, { sweep });
  });
  on("executed", (/** @type {{node: string, prompt_id: string, output: NodeOutput | null}} */ message) => {
    const news = newsOf(message.output);
    if (news) update(message.prompt_id, message.node, news);
  });
  on("execution_success", ({ prompt_id }) => {
    end(prompt_id, (workflow, { participants }) => store.finish(workflow, participants));
  });
  on("execution_error", ({ prompt_id, node_id, node_type, exception_message }) => {
    end(prompt_id, (workflow) => {
      store.stop(workflow);
      if (isOurType(node_type)) store.update(workflow, node_id, { activity: failure(exception_message) });
    });
  });
  on("execution_interrupted", ({ prompt_id }) => {
    end(prompt_id, (workflow) => store.stop(workflow));
  });
}
