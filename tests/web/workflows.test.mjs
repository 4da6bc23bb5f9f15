// Nodes that are made.

import assert from "node:assert/strict";
import { test } from "node:test";
import { app, Node, open } from "./comfyui.mjs";
import { makeNode } from "../../web/js/faster/insert.js";
import { layInRow } from "../../web/js/faster/free_place.js";
import { switchIgnored } from "../../web/js/frontend/inputs.js";

test("new nodes are laid in a row where they lie on nothing", () => {
  const [loader, ...made] = open("a row", [1, "CheckpointLoaderSimple", {}], [2, "PacelineApplyToMe", {}], [3, "PacelineCompileUNet", {}]);
  layInRow(app.rootGraph, made, [900, 0]);
  assert.deepEqual(made.map(({ pos }) => pos), [[460, 0], [700, 0]]); // free: as asked for
  loader.pos = [500, 20];
  layInRow(app.rootGraph, made, [900, 0]);
  const [x, y] = made[0].pos;
  assert.equal(x, 460);
  assert.ok(y >= 20 + 100 || y + 100 + 30 <= 20); // below it, or above its title
});

test("a preset switches off the inputs that it takes the place of, also where it was saved", async () => {
  const [node] = open("a preset", [4, "PacelineApplyToMe", { preset: "custom", method: "merge", ratio: 0.5, strict: false }]);
  node.constructor = { comfyClass: "PacelineApplyToMe" };
  switchIgnored(node);
  const off = () => node.widgets.filter(({ disabled }) => disabled).map(({ name }) => name);
  const [preset] = node.widgets;
  const choose = (value) => preset.callback((preset.value = value));
  choose("quality");
  assert.deepEqual(off(), ["method", "ratio"]);
  choose("custom");
  assert.deepEqual(off(), []);
  preset.value = "quality";
  node.onConfigure({});
  assert.deepEqual(off(), ["method", "ratio"]);
});

test("a node that is made for a step means what the step says", () => {
  window.LiteGraph = { createNode: (type) => new Node(9, type, { preset: "custom", ratio: 0.75 }) };
  const made = (inputs) => makeNode({ node: "PacelineApplyToMe", inputs }).widgets.map(({ value }) => value);
  assert.deepEqual([made({ ratio: 0.5 }), made({ preset: "quality" })], [["custom", 0.5], ["quality", 0.75]]);
});
