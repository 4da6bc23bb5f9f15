// "Make this workflow faster": looks for what can be inserted, asks how much the picture may change, inserts it.

import { app } from "./comfy.js";
import { convert } from "./convert.js";
import { showDialog } from "./dialog.js";
import { createBox, createButton, createElement } from "./elements.js";
import { asOneStep, nodeAt, openWorkflow } from "./graph.js";
import { insertOn, makeNode } from "./insert.js";
import { bringIntoView } from "./place.js";
import { openPrompt } from "./prompt.js";
import { ask } from "./server.js";
import { offerTrial } from "./trial_dialog.js";
import { recall, stepKey } from "./trial_memory.js";
import { costWords, outcomeWords } from "./trial_words.js";
import { locate } from "./wires.js";
import { words, wordsOf } from "./words.js";

/** @typedef {import("./payloads").Advice} Advice */
/** @typedef {import("./payloads").AdvisedPlan} AdvisedPlan */
/** @typedef {{wire: Wire, plans: Record<string, AdvisedPlan>}} Advised */
/** @typedef {{wire: Wire, steps: Step[], foreign: AdvisedPlan["foreign"]}} Plan what is to be done on a wire */

/** Served by server/routes.py. */
const ROUTE = "/paceline/advice";

/** @typedef {Awaited<ReturnType<typeof recall>>} Memory what trials have found before */

/**
 * @param {string} choice
 * @param {Advised[]} advised
 * @param {Memory} memory
 * @returns {Plan[]} for each wire on which something is left to be done
 */
function planFor(choice, advised, memory) {
  return advised.flatMap(({ wire, plans }) => {
    const { foreign, steps } = plans[choice];
    const kept = memory.get(wire)?.choices[choice]?.kept;
    const left = kept ? steps.filter((step) => kept.some((one) => stepKey(one) === stepKey(step))) : steps;
    return left.length || foreign.length ? [{ wire, steps: left, foreign }] : [];
  });
}

/**
 * Insert what a choice asks for. One step back with undo.
 * @param {Plan[]} plans
 */
function apply(plans) {
  return asOneStep(() =>
    plans.map(({ wire, steps, foreign }) => {
      for (const { node: id, inputs } of foreign) {
        const node = nodeAt(id);
        const made = node && convert(node, inputs);
        if (made?.graph === wire.graph && node?.id === wire.origin) wire.origin = made.id;
      }
      return { wire, steps, nodes: insertOn(wire, steps) };
    }),
  );
}

let asking = false;

/** Open the dialog with the three choices: one, however often it is asked for before the server has answered. */
export async function makeFaster() {
  if (asking) return;
  asking = true;
  await openChoices().finally(() => (asking = false));
}

async function openChoices() {
  const workflow = openWorkflow();
  const prompt = await openPrompt();
  /** @type {Advice} */
  const { choices, wires } = await ask(ROUTE, prompt);
  const advised = wires.flatMap((found) => locate(found).map((wire) => ({ wire, plans: found.plans })));
  const notes = [...new Set(wires.flatMap((found) => found.notes))];
  const heading = createElement("h3", { textContent: words("fasterInserts") });
  const list = createElement("ul");
  let memory = await recall(prompt, advised.map(({ wire }) => wire), choices);
  if (openWorkflow() !== workflow) return; // the answer is about nodes of another one
  /** @type {Plan[]} */
  let plans = [];
  const go = createButton(words("insert"), () => {
    dialog.close();
    const inserted = apply(plans);
    app.canvas.selectItems?.(inserted.flatMap(({ nodes }) => nodes));
    bringIntoView(inserted.flatMap(({ wire, nodes }) => (nodes.length ? [...nodes, ...wire.receivers.map(({ node }) => node)] : [])));
    const measured = inserted.filter(({ wire }) => memory.get(wire)?.choices[chosen]);
    if (!measured.length) void offerTrial(inserted, chosen);
  });
  go.classList.add("paceline-primary");
  go.autofocus = true;
  let [, chosen] = choices;

  /** @param {string} choice */
  function choose(choice) {
    chosen = choice;
    plans = planFor(choice, advised, memory);
    go.disabled = heading.hidden = !plans.length;
    const before = advised.flatMap(({ wire }) => {
      const outcome = memory.get(wire)?.choices[choice]?.outcome;
      return outcome ? outcomeWords(outcome) : [];
    });
    const anew = createButton(words("measureAnew"), () => {
      for (const found of memory.values()) delete found.choices[choice];
      choose(choice);
    });
    const lines = [
      ...before.map((sentence) => line(sentence, words("measuredBefore"))),
      ...plans.flatMap((plan) => planLines(plan, memory)),
    ];
    const left = notes.map((note) => createElement("li", {}, createElement("small", { textContent: note })));
    const empty = words(advised.length ? "fasterAlready" : "fasterNoSampler");
    list.replaceChildren(...(lines.length ? lines : [line(empty)]), ...left, ...(before.length ? [anew] : []));
  }

  const labels = choices.map((choice) => {
    const checked = choice === chosen;
    const radio = createElement("input", { type: "radio", name: "paceline-choice", value: choice, checked });
    radio.addEventListener("change", () => choose(choice));
    const name = createElement("strong", {}, wordsOf(`choice_${choice}`));
    const text = createElement("span", {}, name, createElement("small", {}, wordsOf(`choice_${choice}_why`)));
    return createElement("label", {}, radio, text);
  });
  choose(chosen);
  const group = createElement("fieldset", {}, createElement("legend", {}, words("fasterChoice")), ...labels);
  const content = createBox("paceline-faster", group, heading, list);
  const cancel = createButton(words("cancel"), () => dialog.close());
  const dialog = showDialog(words("faster_title"), content, [cancel, go]);
  if (go.disabled) cancel.focus();
}

/**
 * @param {Plan} plan
 * @param {Memory} memory
 * @returns {HTMLElement[]} a line for each node that would be inserted or converted
 */
function planLines({ wire, steps, foreign }, memory) {
  const where = wire.receivers.map(({ node }) => node.getTitle()).join(", ");
  return [
    ...foreign.map(({ node, to }) => line(`${nodeAt(node)?.getTitle()} → ${titleOf(to)}`, words("convert"))),
    ...steps.map((step) => {
      const widgets = makeNode(step)?.widgets ?? [];
      const label = (/** @type {string} */ name) => widgets.find((widget) => widget.name === name)?.label ?? name;
      const values = Object.entries(step.inputs).map(([name, value]) => `${label(name)} ${value}`);
      const title = titleOf(step.node) + (values.length ? ` (${values.join(", ")})` : "");
      const cost = costWords(memory.get(wire)?.nodes[stepKey(step)]);
      return line(`${title} → ${where}`, wordsOf(`why_${step.node}`), cost);
    }),
  ];
}

/**
 * @param {string} type of a node
 * @returns {string} its name in the language of the page
 */
function titleOf(type) {
  return /** @type {any} */ (window).LiteGraph.registered_node_types?.[type]?.title ?? type;
}

/**
 * @param {string} text
 * @param {...string} more lines below it
 */
function line(text, ...more) {
  const below = more.map((textContent) => createElement("small", { textContent }));
  return createElement("li", {}, createElement("strong", {}, text), ...below);
}
