// Runs a prompt and waits for its end: a measurement, which is no run of the workflow, or the workflow itself.

import { api, onMessage } from "../frontend/comfy.js";
import { ask, failureOf } from "../frontend/server.js";
import { words } from "../frontend/language.js";

/** What the ids of nodes begin with by which such a prompt is known; service/faster/prompts.py has the same. */
export const NO_RUN = "paceline_trial";

/**
 * @template Shown
 * @param {Prompt} prompt
 * @param {((output: NodeOutput) => Shown | undefined) | null} pick what is wanted, of what a node shows; null where only the end is
 * @param {object} [how]
 * @param {(share: number, node: string) => void} [how.progress]
 * @param {AbortSignal} [how.cancelled] stops this prompt and no other: somebody else's may run on the same server
 * @param {SavedWorkflow} [how.workflow] that the prompt is a run of
 * @param {() => void} [how.begins] told when it leaves the queue
 * @param {string[]} [how.only] the nodes that are wanted, with what they need, if not all
 * @returns {Promise<Shown | string>} the last that was shown; without pick the id of the prompt
 * @throws {Error} if it fails; an AbortError if somebody stops it
 */
export async function runPrompt(prompt, pick, { progress = () => {}, cancelled, workflow, begins = () => {}, only } = {}) {
  cancelled?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const stop = new AbortController();
    // Its messages can be quicker than the answer that says which prompt it is: they wait for that.
    const extra = workflow && { extra_data: { extra_pnginfo: { workflow } } };
    const asked = ask("/prompt", { client_id: api.clientId, prompt, partial_execution_targets: only, ...extra });
    /** @type {Shown | undefined} */
    let shown;
    /** @type {(type: string, handler: (detail: any) => void) => void} */
    const on = (type, handler) => {
      const listener = async (/** @type {any} */ detail) => {
        const { prompt_id } = await asked.catch(() => ({}));
        if (prompt_id && detail?.prompt_id === prompt_id) handler(detail);
      };
      onMessage(type, listener, { signal: stop.signal });
    };
    /** @param {() => void} action */
    const end = (action) => {
      stop.abort();
      action();
    };
    const cancel = () => {
      void asked.then(withdraw, () => {}); // refused: it is in no queue
      end(() => reject(new DOMException("", "AbortError")));
    };
    cancelled?.addEventListener("abort", cancel, { signal: stop.signal });
    on("execution_start", begins);
    // The node that measures runs others, which tell of progress of their own.
    on("progress", ({ node, value, max }) => (workflow || String(node).startsWith(NO_RUN)) && progress(max ? value / max : 0, String(node)));
    on("executed", ({ output }) => (shown = pick?.(output ?? {}) ?? shown));
    on("execution_error", (failed) => end(() => reject(new Error(failureOf(failed)))));
    on("execution_interrupted", () => end(() => reject(new DOMException("", "AbortError"))));
    on("execution_success", () => void asked.then(done));
    const done = (/** @type {{prompt_id: string}} */ { prompt_id }) => {
      const result = pick ? shown : prompt_id;
      end(() => (result ? resolve(result) : reject(new Error("?"))));
    };
    asked.catch((error) => end(() => reject(error)));
    /** @param {Error} gone why the server knows nothing of the prompt */
    const look = async (gone) => {
      const { prompt_id } = await asked;
      const { queue_running, queue_pending } = await ask("/queue");
      const ended = (await ask(`/history/${prompt_id}`))[prompt_id];
      if ([...queue_running, ...queue_pending].some((/** @type {unknown[]} */ [, id]) => id === prompt_id)) return;
      if (ended?.status?.status_str !== "success") {
        const said = failureOf(ended?.status?.messages?.at(-1)?.[1] ?? {});
        return end(() => reject(said ? new Error(said) : gone));
      }
      for (const output of Object.values(ended.outputs ?? {})) shown = pick?.(/** @type {NodeOutput} */ (output)) ?? shown;
      if (shown || !pick) done({ prompt_id });
    };
    // Of one that somebody takes out of the queue there is no other message; without a detail the connection is lost.
    const taken = (/** @type {any} */ { detail }) => detail && void look(new DOMException("", "AbortError")).catch(() => {});
    api.addEventListener("status", taken, { signal: stop.signal });
    // Messages were missed; a server that was started again knows nothing of the prompt.
    const again = () => void look(new Error(words("runLost"))).catch((error) => end(() => reject(error)));
    api.addEventListener("reconnected", again, { signal: stop.signal });
  });
}

/**
 * Take a prompt out of the queue; if it runs by now, stop it.
 * @param {{prompt_id: string}} prompt
 */
async function withdraw({ prompt_id }) {
  await ask("/queue", { delete: [prompt_id] });
  await ask("/interrupt", { prompt_id });
}
