// ComfyUI's websocket messages, turned into entries of the store.

import { api } from "./comfy.js";
import { isOurType } from "./graph.js";

/** @typedef {import("./store.js").ActivityStore} ActivityStore */

/** The websocket event of optimizers/hosts/comfyui/reporting.py. */
const ACTIVITY = "paceline.activity";
/** Sent about once a second while something is compiled. */
const COMPILE = "paceline.compile";

/** One run of a workflow: which workflow it is, and which nodes took part. */
class Run {
  /** @type {Set<string>} */
  participants = new Set();

  /** @param {string} promptId */
  constructor(promptId) {
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
 * @param {unknown} detail a message's payload
 * @returns {{node: string, activity: import("./store.js").Activity} | null} null if it is not what we send
 */
export function parseActivity(detail) {
  const { node, state, text, details, progress } = /** @type {Record<string, any>} */ (detail ?? {});
  if (node == null || typeof state !== "string" || typeof text !== "string") return null;
  return {
    node: String(node),
    activity: {
      state,
      text,
      details: Array.isArray(details) ? details.map(String) : [],
      ...(typeof progress === "number" && { progress: Math.min(Math.max(progress, 0), 1) }),
    },
  };
}

/**
 * Start to listen. Messages are handled in the order in which they arrive.
 * @param {ActivityStore} store
 */
export function listen(store) {
  /** @type {Run | null} */
  let run = null;
  let queue = Promise.resolve();

  /** @param {(workflow: string) => void} action what to do once the workflow of the current run is known */
  const later = (action) => {
    const workflow = run?.workflow;
    if (workflow) queue = queue.then(async () => action(await workflow));
  };
  /**
   * @param {string} type
   * @param {(detail: any) => void} handler
   */
  const on = (type, handler) => {
    // The cast: our own event is not among those the frontend's types list.
    /** @type {EventTarget} */ (api).addEventListener(type, (event) => handler(/** @type {CustomEvent} */ (event).detail));
  };

  on("execution_start", ({ prompt_id }) => {
    run = new Run(prompt_id);
  });
  on("execution_cached", ({ nodes }) => {
    for (const node of nodes ?? []) run?.participants.add(String(node));
  });
  on("executing", (node) => {
    if (node != null) run?.participants.add(String(node));
  });
  on(ACTIVITY, (detail) => {
    const news = parseActivity(detail);
    if (!news) return;
    run?.participants.add(news.node);
    later((workflow) => store.update(workflow, news.node, { activity: news.activity }));
  });
  on(COMPILE, (detail) => {
    const news = parseActivity({ state: "working", ...detail });
    if (news) later((workflow) => store.update(workflow, news.node, { activity: news.activity }));
  });
  on("executed", ({ node, output }) => {
    const comparison = output?.paceline_comparison?.[0];
    if (comparison) later((workflow) => store.update(workflow, String(node), { comparison }));
    const report = output?.paceline_report?.[0];
    if (report) later((workflow) => store.update(workflow, String(node), { report }));
    const steps = output?.paceline_steps;
    if (steps) later((workflow) => store.update(workflow, String(node), { steps }));
  });
  on("execution_success", () => {
    const participants = run?.participants ?? new Set();
    later((workflow) => store.finish(workflow, participants));
  });
  on("execution_error", ({ node_id, node_type, exception_message }) => {
    later((workflow) => {
      store.stop(workflow);
      if (!isOurType(node_type)) return;
      const [text, ...details] = String(exception_message).trim().split("\n");
      store.update(workflow, String(node_id), { activity: { state: "failed", text, details } });
    });
  });
  on("execution_interrupted", () => later((workflow) => store.stop(workflow)));
}
