// The dialog of "Make this workflow faster": what it says while the server is asked, and after something has failed.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { api, app, happens, open, until } from "./comfyui.mjs";
import { secondsOfBoth } from "../../web/js/faster/levers.js";
import { makeFaster } from "../../web/js/faster/faster.js";

const said = (text) => ({ text, phrase: text });
const answer = (more) => ({ phase: "look", job: "", prompt: null, why_not: said(""), lines: [], levers: [], offer: null, ...more });
const OFFER = { label: "Reuse Steps", expected: said("2x"), about: said("near"), sampling_speedup: [1, 2, 3], proof_seconds: [4, 6], proof_pictures: 6, measured: null, beyond: false, picture: null, inserts: [] };
const KNOWN = answer({ phase: "answer", job: "one", lines: [said("It took 3 s")], offer: OFFER });

/** What the dialog has asked, and by what is asked for what the server answers. */
let asked, answers, timeline;

beforeEach(async () => {
  api.reload();
  open("a workflow", [4, "KSampler", {}]);
  app.graphToPrompt = async () => ({ output: {} });
  asked = [];
  answers = { look: ({ choice }) => answer({ lines: [said(`of ${choice}`)] }), run: () => KNOWN };
  api.answers["/paceline/faster"] = ({ body }) => {
    asked.push(JSON.parse(body));
    return answers[asked.at(-1).do](asked.at(-1));
  };
  timeline = { runs: [] };
  await makeFaster(timeline);
});

const dialog = () => [...document.querySelectorAll("dialog")].at(-1);
const lines = () => [...dialog().querySelectorAll("ul li")].map(({ textContent }) => textContent);
const labels = () => [...dialog().querySelectorAll(".paceline-dialog-buttons button")].filter(({ hidden }) => !hidden).map(({ textContent }) => textContent);
const press = (start) => [...dialog().querySelectorAll(".paceline-dialog-buttons button")].find((one) => one.textContent.startsWith(start)).click();
const choose = (name) => happens(dialog().querySelector(`input[value=${name}]`), "change");

test("the lines are of the choice, or say why there are none", async () => {
  assert.equal(lines()[0], "of balanced");
  choose("fast");
  await until(() => lines()[0] === "of fast");
  answers.look = () => {
    throw new Error("nobody answers");
  };
  choose("lossless");
  await until(() => lines()[0] === "nobody answers");
});

test("what the workflow has of its own is switched on to look, and back", async () => {
  open("a workflow", [4, "PrimitiveBoolean", { value: false }], [5, "LoraLoaderModelOnly", {}], [6, "VAEDecodeTiled", { tile_size: 512, temporal_size: 64 }]);
  const [{ widgets }, lora, tiled] = app.rootGraph.nodes;
  const sizes = () => tiled.widgets.map(({ value }) => value);
  lora.mode = 4;
  const tiles = ["tile_size", "temporal_size"].map((input) => ({ node: "6", input, value: 4096 }));
  const sets = [{ node: "4", input: "value", value: true }, { node: "5", input: "", value: true }, ...tiles];
  answers.look = () => answer({ levers: [{ said: said("enable_turbo takes 4 steps"), sets }, { said: said("Beside x lies y"), sets: [] }] });
  choose("fast");
  await until(() => dialog().querySelectorAll(".paceline-lever").length === 2);
  const [look, ...others] = dialog().querySelectorAll(".paceline-lever button");
  assert.equal(others.length, 0, "the other has to be done by a person");
  const before = labels();
  api.answers["/prompt"] = { prompt_id: "one" };
  look.click();
  await until(() => labels().join() === "Stop");
  assert.deepEqual([widgets[0].value, lora.mode, sizes()], [true, 0, [4096, 4096]]);
  api.tell("execution_start", { prompt_id: "one" });
  api.tell("executed", { prompt_id: "one", output: { images: [{ filename: "x.png", subfolder: "", type: "temp" }] } });
  api.tell("execution_success", { prompt_id: "one" });
  await until(() => labels().join() === "Back,Keep");
  assert.equal(dialog().querySelector(".paceline-pair").textContent, "beforeafter", "nothing is known of the run before");
  press("Back");
  assert.deepEqual([widgets[0].value, lora.mode, sizes(), labels()], [false, 4, [512, 64], before]);
});

test("two runs are compared by what ran in both, without what was loaded", () => {
  const run = (...parts) => ({ parts: parts.map(([kind, node, start, end]) => ({ kind, node, start, end })) });
  const before = run(["loading", "1", 0, 3], ["samplingRun", "4", 3, 8], ["decoding", "6", 8, 10]);
  assert.deepEqual(secondsOfBoth(before, run(["loading", "9", 0, 4], ["decoding", "6", 4, 5])), [2, 1]);
  assert.deepEqual(secondsOfBoth(before, run(["samplingRun", "4", 0, 2], ["otherNodes", "7", 2, 2.125])), [5, 2.125]);
  assert.deepEqual(secondsOfBoth(before, run(["samplingRun", "4", 0, 2], ["decoding", "7", 2, 3])), []);
  assert.deepEqual(secondsOfBoth(undefined, before), []);
});

test("the files of nodes that are switched off go with the question", async () => {
  open("a workflow", [4, "KSampler", {}], [5, "LoraLoaderModelOnly", { lora_name: "turbo_4steps.safetensors", strength_model: 1 }]);
  app.rootGraph.nodes[1].mode = 4;
  choose("fast");
  await until(() => asked.at(-1).choice === "fast");
  assert.deepEqual(asked.at(-1).bypassed, [{ id: "5", type: "LoraLoaderModelOnly", title: "LoraLoaderModelOnly", values: ["turbo_4steps.safetensors"] }]);
});

test("a choice whose answer comes after the run has begun changes nothing in it", async () => {
  let late;
  answers.look = () => new Promise((done) => (late = () => done(answer({ lines: [said("late")] }))));
  choose("fast");
  press("Run once and look");
  await until(() => lines().includes("It took 3 s"));
  late();
  await until(() => true);
  assert.deepEqual([lines(), labels()], [["It took 3 s"], ["Close", "Prove it (about 4–6 s)", "Keep"]]);
  assert.equal(asked.at(-1).choice, "fast");
});

test("a second click asks for nothing more, and where a proof fails the answer can be kept still", async () => {
  press("Run once and look");
  press("Run once and look");
  await until(() => labels().includes("Keep"));
  assert.equal(asked.filter(({ do: what }) => what === "run").length, 1);
  answers.prove = () => {
    throw new Error("No sampler gives a latent.");
  };
  press("Prove it");
  await until(() => dialog().querySelector("p").textContent);
  const status = dialog().querySelector("p");
  assert.deepEqual([status.textContent, status.hidden], ["No sampler gives a latent.", false]);
  assert.deepEqual([lines(), labels()], [["It took 3 s"], ["Close", "Prove it (about 4–6 s)", "Keep"]]);
});

test("a proof counts its pictures, and the offer stays in view", async () => {
  press("Run once and look");
  await until(() => labels().includes("Keep"));
  answers.prove = () => answer({ phase: "proof", job: "one", prompt: {}, offer: OFFER });
  api.answers["/prompt"] = { prompt_id: "proof" };
  press("Prove it");
  await until(() => labels().join() === "Stop");
  assert.match(dialog().querySelector(".paceline-offer").textContent, /^Reuse Steps/);
  api.tell("progress", { prompt_id: "proof", node: "paceline_trial baseline 0 5", value: 5, max: 10 });
  api.tell("progress", { prompt_id: "proof", node: "paceline_trial optimized 0 5", value: 5, max: 10 });
  await until(() => dialog().querySelector("p").textContent.startsWith("The same seeds plain and faster: picture 2 of 6, about "));
  assert.equal(dialog().querySelector("progress").value, 0.25);
  answers.next = () => answer({ phase: "proof", job: "one", prompt: {}, offer: { ...OFFER, measured: said("After 1 of at most 3 seeds: 40% less work") } });
  api.answers["/prompt"] = { prompt_id: "second" };
  api.tell("execution_success", { prompt_id: "proof" });
  await until(() => dialog().querySelector(".paceline-measured")?.textContent.startsWith("After 1 of"));
  api.tell("progress", { prompt_id: "second", node: "paceline_trial optimized 1 5", value: 0, max: 10 });
  await until(() => dialog().querySelector("p").textContent.startsWith("The same seeds plain and faster: picture 3 of 6, about "));
});

test("what leaves the steps as they are has no proof", async () => {
  answers.run = () => answer({ phase: "answer", job: "one", offer: { ...OFFER, label: "VAE Precision", proof_seconds: [] } });
  press("Run once and look");
  await until(() => labels().includes("Keep"));
  assert.deepEqual(labels(), ["Close", "Keep"]);
  assert.equal(dialog().querySelector(".paceline-dialog-buttons .paceline-primary").textContent, "Keep");
});

test("what a proof has shown to be farther than allowed is not advised", async () => {
  const advised = () => dialog().querySelector(".paceline-dialog-buttons .paceline-primary").textContent;
  answers.run = () => answer({ phase: "answer", job: "one", offer: { ...OFFER, beyond: true } });
  press("Run once and look");
  await until(() => labels().includes("Keep"));
  assert.equal(advised(), "Close");
});

test("where the run cannot begin, that is said with its cause", async () => {
  answers.run = () => {
    throw new Error("nobody answers");
  };
  press("Run once and look");
  await until(() => labels().join() === "Close");
  const status = dialog().querySelector("p");
  assert.match(status.textContent, /^This could not be measured\..*nobody answers$/);
  assert.equal(status.hidden, false);
});
