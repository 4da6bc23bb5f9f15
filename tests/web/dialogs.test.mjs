// What opens above the page: the report, a comparison in the whole window; badges, our settings.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { api, app, Node, open, until } from "./comfyui.mjs";
import { Badge } from "../../web/js/badges/badge.js";
import { renderCache } from "../../web/js/frontend/cache.js";
import { attempt, tell } from "../../web/js/frontend/comfy.js";
import { showDialog } from "../../web/js/frontend/elements.js";
import { openLightbox } from "../../web/js/compare/lightbox.js";
import { openReport } from "../../web/js/badges/report.js";
import { ask, failureOf } from "../../web/js/frontend/server.js";
import { ActivityStore } from "../../web/js/badges/activity_store.js";
import { Viewer } from "../../web/js/compare/viewer.js";

const dialog = () => document.querySelector("dialog");
const all = (selector, within = dialog()) => [...within.querySelectorAll(selector)];
const texts = (selector, within) => all(selector, within).map(({ textContent }) => textContent);
const event = (type, more) => Object.assign(new window.Event(type, { cancelable: true }), more);
const toasts = (context) => {
  const told = context.mock.method(app.extensionManager.toast, "add");
  return () => told.mock.calls.map(({ arguments: [{ severity, summary }] }) => `${severity}: ${summary}`);
};

beforeEach(() => {
  api.answers = {};
});
afterEach(() => dialog()?.close());

test("the report has a part for each sampler and each node of ours, and can be copied", async () => {
  open("a report", [2, "PacelineApplyToMe", {}], [3, "PacelineFuseQKV", {}], [4, "KSampler", {}]);
  const store = new ActivityStore();
  const activity = { state: "active", title: "Apply ToMe", headline: "3 of 7", counts: { blocks: 1943 }, details: ["at 64 x 64"], neutral: true };
  store.update("a report", "2", { activity });
  for (const [id, text] of [["4", "3.1 it/s"], ["9", "of a node that is gone"]]) store.update("a report", id, { chip: { text, lines: [text] } });
  const copied = [];
  navigator.clipboard = { writeText: async (text) => copied.push(text) };
  openReport(store);
  assert.deepEqual(texts("dt"), ["KSampler (#4)", "ApplyToMe (#2)", "FuseQKV (#3)"]);
  assert.deepEqual(texts("dd"), ["3.1 it/s", "● active", "3 of 7", "at 64 x 64", "– not run yet"]);
  all("button")[0].click();
  await until(() => texts("button")[0] === "Copied");
  assert.equal(all("dd")[1].dataset.state, "on", "what may cost time is not green");
  assert.equal(copied[0], "KSampler (#4)\n  3.1 it/s\nApplyToMe (#2): active\n  3 of 7\n  at 64 x 64\nFuseQKV (#3): not run yet");
  all("button")[1].click();
  assert.equal(dialog(), null);
  delete navigator.clipboard;
  app.rootGraph.nodes[1].mode = 4;
  openReport(store);
  assert.equal(texts("dd").at(-1), "– bypassed");
  assert.ok(all("button")[0].disabled);
});

test("keys that are typed into a dialog are no shortcuts of the page", () => {
  showDialog("A title", document.createElement("p"), []);
  let heard = 0;
  document.addEventListener("keydown", () => heard++, { once: true });
  dialog().dispatchEvent(new window.Event("keydown", { bubbles: true }));
  assert.deepEqual([heard, texts("h2")], [0, ["A title"]]);
});

test("a badge has its details for the pointer and for a screen reader, and its keys are no shortcuts of the page", () => {
  const badge = new Badge(() => {});
  const [button] = all("button", document.body.appendChild(badge.element));
  badge.show({ activity: { state: "failed", title: "Apply ToMe", headline: "It broke.", counts: {}, details: [] } }, new Node(1, "PacelineApplyToMe"));
  assert.match(button.ariaLabel, /^Paceline, failed: It broke.+ Press Enter for the report.$/);
  let heard = "";
  document.body.addEventListener("keydown", ({ key }) => (heard += key));
  const press = (key) => button.dispatchEvent(Object.assign(new window.Event("keydown", { bubbles: true }), { key }));
  for (const key of ["Enter", " ", "Escape", "a"]) press(key);
  assert.deepEqual([button.title, heard], ["Apply ToMe: failed\nIt broke.", "Escapea"]);
  badge.element.remove();
});

const PAIR = { left: "/a.png", right: "/b.png", labels: ["Baseline", "Optimized"], gain: 4 };

test("the slider of two pictures follows the pointer and the arrow keys, within the picture", () => {
  const viewer = new Viewer();
  viewer.show(PAIR);
  const [range] = all("input", viewer.element);
  viewer.box.getBoundingClientRect = () => ({ left: 100, width: 200 });
  const share = () => range.ariaValueText;
  const moved = (type, more) => (range.dispatchEvent(event(type, more)), share());
  assert.deepEqual([share(), moved("pointermove", { clientX: 120 }), moved("keydown", { key: "ArrowLeft" })], ["50%", "10%", "5%"]);
  assert.deepEqual([moved("keydown", { key: "ArrowDown" }), moved("keydown", { key: "ArrowLeft" }), moved("keydown", { key: "a" })], ["0%", "0%", "0%"]);
  assert.deepEqual(all(".paceline-layer img", viewer.element).map(({ alt }) => alt).sort(), PAIR.labels);
  viewer.mode = "blink";
  assert.ok(range.disabled);
});

test("in the whole window a comparison is zoomed where the pointer is, and whole again after two clicks", () => {
  openLightbox(PAIR, "side", "A comparison");
  assert.deepEqual(all("button").filter(({ ariaPressed }) => ariaPressed === "true").map(({ textContent }) => textContent), ["Side by side"]);
  all("button")[0].click();
  const [figure] = all("figure");
  assert.equal(figure.dataset.mode, "slider");
  all(".paceline-layer-right")[0].getBoundingClientRect = () => ({ left: 0, top: 0, width: 100, height: 100 });
  const seen = () => ["zoom", "x", "y"].map((name) => figure.style.getPropertyValue(`--paceline-${name}`));
  figure.dispatchEvent(event("wheel", { deltaY: -400 * Math.log(2), clientX: 50, clientY: 0 }));
  assert.deepEqual(seen(), ["2", "-50%", "0%"]);
  figure.dispatchEvent(event("pointermove", { buttons: 1, movementX: 200, movementY: -300 }));
  assert.deepEqual(seen(), ["2", "0%", "-100%"]); // no farther than the picture's edge
  figure.dispatchEvent(event("dblclick"));
  assert.deepEqual([...seen(), figure.dataset.zoomed], ["1", "0%", "0%", "false"]);
});

test("compiled code has a size, is deleted at a click, and a refusal is said and leaves the button", async (context) => {
  const said = toasts(context);
  api.answers["/paceline/cache"] = ({ method }) => {
    if (method === "DELETE" && said().length) throw new Error("A workflow runs.");
    return { bytes: method === "DELETE" ? 0 : 12_345_678, path: "/a/folder" };
  };
  const drawn = async () => {
    const control = renderCache();
    await until(() => texts("code", control)[0]);
    return control;
  };
  const control = await drawn();
  assert.deepEqual([texts("output", control), texts("code", control)], [["12.3 MB"], ["/a/folder"]]);
  all("button", control)[0].click();
  await until(() => texts("output", control)[0] === "empty");
  assert.deepEqual([said(), all("button", control)[0].disabled], [["success: Compiled code was deleted."], true]);
  const [again] = all("button", await drawn());
  again.click();
  await until(() => said().length === 2);
  assert.deepEqual([said()[1], again.disabled], ["error: A workflow runs.", false]);
  delete api.answers["/paceline/cache"];
  const silent = renderCache();
  await until(() => texts("output", silent)[0] === "unknown");
});

test("a refusal is said in the words of our server, or of ComfyUI about the first node", async (context) => {
  const answer = (body, ok = false) => context.mock.method(api, "fetchApi", async () => ({ ok, statusText: "Bad Request", json: async () => body ?? JSON.parse("no JSON") }));
  const words = () => ask("/x", {}).catch(({ message }) => message);
  answer({ error: "Choose another name." });
  assert.equal(await words(), "Choose another name.");
  answer({ error: { message: "invalid" }, node_errors: { 4: { class_type: "KSampler", errors: [{ message: "Value not in list", details: "sampler_name" }] } } });
  assert.equal(await words(), "KSampler: Value not in list: sampler_name");
  answer({ error: { message: "no outputs" }, node_errors: {} });
  assert.equal(await words(), "no outputs");
  answer(undefined);
  assert.equal(await words(), "Bad Request");
  assert.deepEqual([failureOf({ exception_message: " It broke.\n" }), failureOf({ exception_type: "KeyError" })], ["It broke.", "KeyError"]);
});

test("what fails is said, and what does not is done", async (context) => {
  const said = toasts(context);
  await attempt(() => tell("info", "done"));
  await attempt(() => Promise.reject(new Error("it broke")));
  assert.deepEqual(said(), ["info: done", "error: it broke"]);
});
