// What nodes can say before a run, which the server knows from the file of the model: shown until they have run.

import { api } from "../frontend/comfy.js";
import { openPrompt, openWorkflow, ourNodes } from "../frontend/graph.js";
import { ask } from "../frontend/server.js";

/** Served by service/before_run.py. */
const ROUTE = "/paceline/before";

/** Milliseconds without another change before the server is asked. */
const PAUSE = 400;

/**
 * @param {ActivityStore} store
 * @returns {() => void} asks for the nodes of the open workflow, when it has been loaded
 */
export function foretell(store) {
  let timer = 0;
  let asked = "";
  const look = async () => {
    const workflow = openWorkflow();
    const silent = ourNodes().filter(({ id }) => store.entry(workflow, id)?.foretold !== false);
    if (!silent.length) return;
    const prompt = await openPrompt();
    const question = JSON.stringify([workflow, prompt]);
    if (question === asked) return;
    asked = question;
    /** @type {BeforeRun} */
    const { nodes } = await ask(ROUTE, { prompt });
    if (workflow === openWorkflow() && question === asked) store.foretell(workflow, nodes);
  };
  const later = () => {
    clearTimeout(timer);
    // A workflow that is no prompt yet says nothing of its nodes.
    timer = window.setTimeout(() => void look().catch(() => {}), PAUSE);
  };
  api.addEventListener("graphChanged", later);
  later();
  return later;
}
