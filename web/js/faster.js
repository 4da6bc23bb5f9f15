// "Make this workflow faster": looks for what can be inserted, asks how much the picture may change, inserts it.

import { api, app } from "./comfy.js";
import { CONVERSIONS, convert } from "./convert.js";
import { createButton, showDialog } from "./dialog.js";
import { asOneStep } from "./graph.js";
import { insertOn } from "./insert.js";
import { offerTrial } from "./trial_dialog.js";
import { recall } from "./trial_memory.js";
import { findWires, upstream } from "./wires.js";
import { words, wordsOf } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").Advice} Advice */
/** @typedef {import("./payloads").AdvisedChoice} AdvisedChoice */
/** @typedef {import("./payloads").Step} Step */
/** @typedef {import("./wires.js").Wire} Wire */
/** @typedef {{wire: Wire, steps: Step[], foreign: LGraphNode[]}} Plan what is to be done on a wire */
/** @typedef {{wire: Wire, steps: Step[], nodes: LGraphNode[]}} Inserted */

/** Served by nodes/routes.py. */
const ROUTE = "/paceline/advice";

const PRESET = "PacelineOptimizePreset";

/** @typedef {Awaited<ReturnType<typeof recall>>} Memory what trials have found before */

/**
 * @param {AdvisedChoice} choice
 * @param {Wire[]} wires
 * @param {Memory} memory
 * @returns {Plan[]} for each wire on which something is left to be done
 */
function planFor(choice, wires, memory) {
  return wires.flatMap((wire) => {
    const before = upstream(wire);
    const types = before.map((node) => String(node.type));
    if (types.includes(PRESET)) return [];
    const foreign = before.filter((node) => String(node.type) in CONVERSIONS && node.mode === 0);
    const converted = foreign.map((node) => CONVERSIONS[String(node.type)].to);
    const steps = (memory.get(wire)?.[choice.name]?.kept ?? choice.steps).filter(
      ({ node }) => goesOn(node, wire) && !types.includes(node) && !converted.includes(node),
    );
    return steps.length || foreign.length ? [{ wire, steps, foreign }] : [];
  });
}

/**
 * @param {string} type of one of our nodes
 * @param {Wire} wire
 * @returns {boolean} whether the node changes what the wire hands on; no node of ours changes both
 */
function goesOn(type, { name }) {
  return /VAE/.test(type) === (name === "vae");
}

/**
 * Insert what a choice asks for. One step back with undo.
 * @param {Plan[]} plans
 * @returns {Inserted[]}
 */
function apply(plans) {
  return asOneStep(() =>
    plans.map(({ wire, steps, foreign }) => {
      for (const node of foreign) {
        const made = convert(node, CONVERSIONS[String(node.type)]);
        if (made?.graph === wire.graph && node.id === wire.origin) wire.origin = made.id;
      }
      return { wire, steps, nodes: insertOn(wire, steps) };
    }),
  );
}

/** Open the dialog with the three choices. */
export async function makeFaster() {
  const response = await api.fetchApi(ROUTE);
  /** @type {Advice} */
  const { choices } = await response.json();
  const content = document.createElement("div");
  content.className = "paceline-faster";
  const list = document.createElement("ul");
  const wires = findWires();
  let memory = await recall(wires, choices.map(({ name }) => name));
  /** @type {Plan[]} */
  let plans = [];
  const go = createButton(words("insert"), () => {
    dialog.close();
    const inserted = apply(plans);
    app.canvas.selectItems(inserted.flatMap(({ nodes }) => nodes));
    const measured = inserted.filter(({ wire }) => memory.get(wire)?.[chosen.name]);
    if (!measured.length) offerTrial(inserted, chosen.name);
  });
  go.classList.add("paceline-primary");
  go.autofocus = true;
  let [, chosen] = choices;

  /** @param {AdvisedChoice} choice */
  function choose(choice) {
    chosen = choice;
    plans = planFor(choice, wires, memory);
    go.disabled = !plans.length;
    const before = wires.flatMap((wire) => memory.get(wire)?.[choice.name]?.sentence ?? []);
    const anew = createButton(words("measureAnew"), () => {
      memory = new Map();
      choose(choice);
    });
    list.replaceChildren(
      ...before.map((sentence) => line(sentence, words("measuredBefore"))),
      ...(plans.length ? plans.flatMap(planLines) : before.length ? [] : [line(emptyReason(wires))]),
      ...(before.length ? [anew] : []),
    );
  }

  const group = document.createElement("fieldset");
  group.append(Object.assign(document.createElement("legend"), { textContent: words("fasterChoice") }));
  for (const choice of choices) {
    const label = document.createElement("label");
    const radio = Object.assign(document.createElement("input"), { type: "radio", name: "paceline-choice" });
    radio.value = choice.name;
    radio.checked = choice === chosen;
    radio.addEventListener("change", () => choose(choice));
    const text = document.createElement("span");
    text.append(
      Object.assign(document.createElement("strong"), { textContent: wordsOf(`choice_${choice.name}`) }),
      Object.assign(document.createElement("small"), { textContent: wordsOf(`choice_${choice.name}_why`) }),
    );
    label.append(radio, text);
    group.append(label);
  }
  choose(chosen);
  content.append(group, Object.assign(document.createElement("h3"), { textContent: words("fasterInserts") }), list);
  const dialog = showDialog(words("faster_title"), content, [createButton(words("cancel"), () => dialog.close()), go]);
}

/**
 * @param {Wire[]} wires
 * @returns {string} why nothing can be inserted
 */
function emptyReason(wires) {
  return words(wires.length ? "fasterAlready" : "fasterNoSampler");
}

/**
 * @param {Plan} plan
 * @returns {HTMLElement[]} a line for each node that would be inserted or converted
 */
function planLines({ wire, steps, foreign }) {
  const where = wire.receivers.map(({ node }) => node.getTitle()).join(", ");
  return [
    ...foreign.map((node) => line(`${node.getTitle()} → ${titleOf(CONVERSIONS[String(node.type)].to)}`, words("convert"))),
    ...steps.map(({ node, inputs }) => {
      const values = Object.entries(inputs).map(([name, value]) => `${name} ${value}`);
      const title = titleOf(node) + (values.length ? ` (${values.join(", ")})` : "");
      return line(`${title} → ${where}`, wordsOf(`why_${node}`));
    }),
  ];
}

/**
 * @param {string} type of a node
 * @returns {string} its name in the language of the page
 */
export function titleOf(type) {
  return /** @type {any} */ (window).LiteGraph.registered_node_types[type]?.title ?? type;
}

/**
 * @param {string} text
 * @param {string} [why]
 * @returns {HTMLElement}
 */
function line(text, why) {
  const item = document.createElement("li");
  item.append(Object.assign(document.createElement("strong"), { textContent: text }));
  if (why) item.append(Object.assign(document.createElement("small"), { textContent: why }));
  return item;
}
