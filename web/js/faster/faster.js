// "Make this workflow faster": the server says what to run and what is known (service/faster/job.py); this shows it.

import { app, attempt, messageOf } from "../frontend/comfy.js";
import { createBox, createButton, createElement, showDialog } from "../frontend/elements.js";
import { asOneStep, bypassedNodes, openPrompt, openWorkflow, savedWorkflow } from "../frontend/graph.js";
import { insertOn } from "./insert.js";
import { createOffer, createPictureTime, proofCount } from "./findings.js";
import { createLevers, createPair, lastPicture, outerNames, secondsOfBoth } from "./levers.js";
import { bringIntoView } from "./free_place.js";
import { expectOf } from "./expected.js";
import { runPrompt } from "./run_prompt.js";
import { number, said } from "../badges/headlines.js";
import { ask } from "../frontend/server.js";
import { secondsByKind } from "../speed/timeline.js";
import { locate } from "./wires.js";
import { words, wordsOf } from "../frontend/language.js";

/** Served by service/routes.py. */
const ROUTE = "/paceline/faster";

const CHOICES = ["lossless", "balanced", "fast"];

/** How many pictures are to be drawn, by the words of the page. */
const PICTURES = /** @type {const} */ ({ picturesOne: 1, picturesSome: 20, picturesMany: 1000 });

/** What is said while a prompt runs, by phase. */
const DOING = /** @type {const} */ ({ run: "fasterRuns", probe: "fasterProbes", proof: "fasterProves" });

let opened = false;

/**
 * Open the dialog: one, however often it is asked for before the server has answered.
 * @param {Timeline} timeline
 */
export async function makeFaster(timeline) {
  if (opened) return;
  opened = true;
  await attempt(() => open(timeline));
  opened = false;
}

/** @param {Told[]} told */
const linesOf = (told) => told.map((line) => createElement("li", {}, said(line)));

/** @param {Timeline} timeline */
async function open(timeline) {
  const workflow = openWorkflow();
  const prompt = await openPrompt();
  let choice = CHOICES[1];
  let pictures = 20;
  const asked = () => ({ prompt, bypassed: bypassedNodes(), names: outerNames() });
  /** @type {FasterState} */
  let state = await ask(ROUTE, { do: "look", choice, ...asked() });
  const known = Boolean(state.time);
  if (openWorkflow() !== workflow) return; // the answer is about another one
  let stop = new AbortController();
  let closed = false;
  /** The last run with nothing switched on to look, and its picture. */
  let watched = timeline.runs.findLast((run) => run.workflow === workflow && run.over);
  let plain = lastPicture();
  let asking = false;

  const text = createElement("p", { role: "status", hidden: true });
  const bar = createElement("progress", { hidden: true, max: 1 });
  const list = createElement("ul");
  const time = createBox("paceline-time");
  const own = createBox("paceline-levers");
  const box = createBox("paceline-offers");
  const labels = CHOICES.map((name) => {
    const radio = createElement("input", { type: "radio", name: "paceline-choice", value: name, checked: name === choice });
    radio.addEventListener("change", () => void choose(name));
    const title = createElement("strong", {}, wordsOf(`choice_${name}`));
    const why = createElement("small", {}, wordsOf(`choice_${name}_why`));
    return createElement("label", {}, radio, createElement("span", {}, title, why));
  });
  const group = createElement("fieldset", {}, createElement("legend", {}, words("fasterChoice")), ...labels);
  const counts = Object.entries(PICTURES).map(([name, count]) => {
    const radio = createElement("input", { type: "radio", name: "paceline-pictures", checked: count === pictures });
    radio.addEventListener("change", () => (pictures = count));
    return createElement("label", {}, radio, createElement("span", {}, wordsOf(name)));
  });
  const many = createElement("fieldset", { className: "paceline-pictures" }, createElement("legend", {}, words("fasterPictures")), ...counts);
  const cancel = createButton(words("cancel"), () => dialog.close());
  const run = createButton(words(known ? "fasterMore" : "fasterRun"), () => void begin());
  run.classList.add("paceline-primary");
  run.autofocus = true;
  const dialog = showDialog(words("faster_title"), createBox("paceline-faster", time, own, list, group, many, text, bar, box), [cancel, run]);
  const buttons = /** @type {HTMLElement} */ (run.parentElement);
  dialog.addEventListener("close", () => {
    closed = true;
    stop.abort();
    if (state.job) void ask(ROUTE, { do: "drop", job: state.job }).catch(() => {}); // what it keeps goes with the next run too
  });
  show();

  /** @param {string} name */
  async function choose(name) {
    choice = name;
    try {
      const looked = await ask(ROUTE, { do: "look", choice, ...asked() });
      if (choice !== name || group.disabled) return; // another one was chosen since, or it runs
      state = looked;
      show();
    } catch (error) {
      if (choice === name && !group.disabled) list.replaceChildren(createElement("li", {}, messageOf(error)));
    }
  }

  /** Show what is known. */
  function show() {
    const why = state.why_not.text ? [state.why_not] : [];
    list.replaceChildren(...linesOf([...why, ...state.lines]));
    if (state.phase === "look" && !why.length) list.append(createElement("li", {}, createElement("small", {}, words("fasterKeeps"))));
    time.replaceChildren(...(state.time ? [createPictureTime(state.time)] : []));
    own.replaceChildren(...createLevers(state.levers, look));
    run.disabled = why.length > 0;
    if (run.disabled && !group.disabled) cancel.focus(); // keys go nowhere from a button that is disabled
    if (!group.disabled) return;
    showOffer();
    const { offer } = state;
    const close = createButton(words("close"), () => dialog.close());
    const keep = createButton(words("keep"), () => insert());
    const advised = offer && !offer.beyond ? keep : close; // not what a proof has shown to be farther than allowed
    advised.classList.add("paceline-primary");
    const seconds = offer?.proof_seconds ?? [];
    prove.textContent = words("fasterProve").replace("%s", seconds.map((each) => number(each, ".2g")).join("–"));
    buttons.replaceChildren(close, ...(seconds.length ? [prove] : []), ...(offer ? [keep] : []));
    advised.focus();
  }

  /** In the place of what runs. */
  function showOffer() {
    text.hidden = bar.hidden = true;
    box.replaceChildren(...(state.offer ? [createOffer(state.offer)] : []));
  }

  /**
   * Switch on what the workflow has of its own, draw once, and show both pictures.
   * @param {() => void} turn
   * @param {() => void} back
   */
  async function look(turn, back) {
    if (asking) return;
    asking = true;
    const shown = [...buttons.children];
    const done = () => {
      buttons.replaceChildren(...shown);
      showOffer();
    };
    /** @type {SavedImage | undefined} */
    let picture;
    const pick = (/** @type {NodeOutput & {images?: SavedImage[]}} */ { images }) => ((picture = images?.at(-1) ?? picture), true);
    turn();
    try {
      const begins = waits("leverRuns");
      await runPrompt(await openPrompt(), pick, { progress: (share) => (bar.value = share), cancelled: stop.signal, workflow: savedWorkflow(), begins });
      const [before, after] = secondsOfBoth(watched, timeline.runs.at(-1));
      done();
      box.replaceChildren(createPair({ picture: plain, seconds: before }, { picture, seconds: after }));
      const keep = createButton(words("keep"), () => dialog.close());
      keep.classList.add("paceline-primary");
      const undo = () => {
        back();
        done();
      };
      buttons.replaceChildren(createButton(words("leverBack"), undo), keep);
    } catch (error) {
      back();
      done();
      text.hidden = /** @type {Error} */ (error).name === "AbortError";
      text.textContent = messageOf(error);
    } finally {
      asking = false;
    }
  }

  /**
   * Show that something runs, until its end or a stop.
   * @param {string} doing key of what is said from its beginning on
   * @returns {() => void} to be called when what was sent leaves the queue
   */
  function waits(doing) {
    stop = new AbortController();
    text.hidden = bar.hidden = false;
    text.textContent = words("fasterWaits");
    bar.removeAttribute("value");
    box.replaceChildren();
    buttons.replaceChildren(createButton(words("stop"), () => stop.abort()));
    return () => {
      text.textContent = words(/** @type {any} */ (doing));
    };
  }

  /** Told how far a proof is. */
  let count = proofCount();
  const prove = createButton("", () => {
    count = proofCount();
    void step({ do: "prove", job: state.job });
  });

  async function begin() {
    group.disabled = group.hidden = many.hidden = true; // they are answered
    await step({ do: "run", choice, pictures, ...asked() });
  }

  /**
   * Ask, run what the server wants run, and go on until there is nothing more to run.
   * @param {Record<string, unknown>} question
   */
  async function step(question) {
    if (asking) return; // a second click, before there is an answer to the first
    asking = true;
    const before = state;
    try {
      state = await ask(ROUTE, question);
      while (state.prompt && !closed) state = await ask(ROUTE, await answered(state));
      if (!closed) show();
    } catch (error) {
      if (closed) return;
      state = before.offer ? before : { ...before, lines: [], time: null }; // what could be kept can be kept after a proof that has failed
      show();
      text.hidden = false;
      text.replaceChildren(...(state.offer ? [] : [words("fasterFailed")]), createElement("small", {}, messageOf(error)));
    } finally {
      asking = false;
    }
  }

  /**
   * Run the prompt of a phase.
   * @param {FasterState} asked
   * @returns {Promise<Record<string, unknown>>} the next question
   */
  async function answered({ phase, prompt: sent, job: id, lines, time: known, offer }) {
    list.replaceChildren(...linesOf(lines));
    if (known) time.replaceChildren(createPictureTime(known));
    const begins = waits(DOING[/** @type {keyof typeof DOING} */ (phase)]);
    const next = { do: "next", job: id };
    if (phase === "proof" && offer) box.replaceChildren(createOffer(offer)); // it stays in view
    else own.replaceChildren();
    const tell = (/** @type {number} */ share, /** @type {string} */ node) => {
      const told = phase === "proof" && offer ? count(share, node, offer.proof_pictures) : { share, said: "" };
      bar.value = told.share;
      if (told.said) text.textContent = told.said;
    };
    const watching = phase === "run";
    try {
      const workflow = watching ? savedWorkflow() : undefined;
      const promptId = await runPrompt(/** @type {Prompt} */ (sent), null, { progress: tell, cancelled: stop.signal, workflow, begins });
      if (!watching) return next;
      plain = lastPicture();
      watched = timeline.runs.find((one) => one.promptId === promptId);
      return { ...next, seconds: watched ? secondsByKind(watched) : {} };
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") throw error;
      return { ...next, stopped: true };
    }
  }

  /** Insert the nodes of the offer. One step back with undo. */
  function insert() {
    const offer = /** @type {Offer} */ (state.offer);
    const made = asOneStep(() =>
      offer.inserts.flatMap(({ name, receivers, steps }) =>
        locate({ name, receivers }).map((wire) => ({ wire, nodes: insertOn(wire, steps) })),
      ),
    );
    const nodes = made.flatMap((one) => one.nodes);
    app.canvas.selectItems?.(nodes);
    bringIntoView(made.flatMap((one) => [...one.nodes, ...one.wire.receivers.map(({ node }) => node)]));
    app.canvas.setDirty(true, true);
    if (watched && offer.proof_seconds.length) expectOf(workflow, offer.sampling_speedup, watched, made.flatMap(({ wire, nodes }) => nodes.map((node) => wire.prefix + node.id)));
    const { job } = state;
    state = { ...state, job: "" };
    void ask(ROUTE, { do: "keep", job }).finally(() => ask(ROUTE, { do: "drop", job })).catch(() => {}); // it is remembered, for the next time
    dialog.close();
  }
}
