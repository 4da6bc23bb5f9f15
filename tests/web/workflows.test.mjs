// Workflows as they are saved, and nodes that are made.

import assert from "node:assert/strict";
import { test } from "node:test";
import { app, Node, open } from "./comfyui.mjs";
import { makeNode } from "../../web/js/insert.js";
import { layInRow } from "../../web/js/place.js";
import { switchIgnored } from "../../web/js/ignored.js";
import { applyDefaultPreset } from "../../web/js/preset.js";
import { rememberWidgetNames } from "../../web/js/versions.js";

/** A class of nodes as LiteGraph has them, with three inputs; it remembers their names. */
function nodeType(name) {
  class Type {
    widgets = [{ name: "preset", value: "custom" }, { name: "ratio", value: 0.5 }, { name: "shown", value: 1, serialize: false }, { name: "strict", value: false }];

    configure({ widgets_values: values }) {
      this.widgets.filter(({ serialize }) => serialize !== false).forEach((widget, at) => (widget.value = values[at] ?? widget.value));
    }
  }
  rememberWidgetNames(Type, name);
  return Type;
}

/** The values of a node that is loaded from a file. */
function loaded(saved, name = "PacelineApplyToMe") {
  const node = new (nodeType(name))();
  node.configure(saved);
  return Object.fromEntries(node.widgets.map(({ name: input, value }) => [input, value]));
}

test("values are found by name when a node has got other inputs since", () => {
  const saved = { properties: { kept: 1 } };
  new (nodeType("PacelineApplyToMe"))().onSerialize(saved);
  assert.deepEqual(saved.properties, { kept: 1, paceline_widgets: ["preset", "ratio", "strict"] });
  const older = { properties: { paceline_widgets: ["gone", "strict", "ratio"] }, widgets_values: ["nothing", true, 0.35] };
  assert.deepEqual(loaded(older), { preset: "custom", ratio: 0.35, shown: 1, strict: true });
});

test("a workflow from before there was residual has it off, whether it names its values or not", () => {
  class Today extends nodeType("PacelineApplyToMe") {
    widgets = [{ name: "ratio", value: 0.5 }, { name: "strict", value: false }, { name: "residual", value: "auto" }];
  }
  const residual = (saved) => {
    const node = new Today();
    node.configure(saved);
    return node.widgets.map(({ value }) => value);
  };
  assert.deepEqual(residual({ widgets_values: [0.75, true] }), [0.75, true, "off"]);
  assert.deepEqual(residual({ widgets_values: [true, 0.75], properties: { paceline_widgets: ["strict", "ratio"] } }), [0.75, true, "off"]);
  assert.deepEqual(residual({ widgets_values: [0.75, true, "auto"] }), [0.75, true, "auto"]);
});

test("a workflow that was saved without names loads by position", () => {
  assert.deepEqual(loaded({ widgets_values: ["fast", 0.3] }), { preset: "fast", ratio: 0.3, shown: 1, strict: false });
  assert.equal(nodeType("KSampler").prototype.onSerialize, undefined); // nodes of others are left alone
});

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
  choose("balanced");
  assert.deepEqual(off(), ["method", "ratio"]);
  choose("custom");
  assert.deepEqual(off(), []);
  preset.value = "fast";
  node.onConfigure({});
  assert.deepEqual(off(), ["method", "ratio"]);
});

test("new nodes begin with the preset of the settings, where they offer it", () => {
  const [node] = open("a preset", [4, "PacelineApplyToMe", { preset: "custom" }]);
  node.constructor = { comfyClass: "PacelineApplyToMe" };
  node.widgets[0].options.values = ["custom", "fast"];
  const begins = (setting) => {
    app.settings["Paceline.DefaultPreset"] = setting;
    applyDefaultPreset(node);
    return node.widgets[0].value;
  };
  assert.deepEqual([begins("node"), begins("quality"), begins("fast")], ["custom", "custom", "fast"]);
});

test("a node that is made for a step means what the step says, whatever new nodes begin with", () => {
  window.LiteGraph = {
    createNode(type) {
      const node = new Node(9, type, { preset: "custom", ratio: 0.75 });
      node.constructor = { comfyClass: type };
      node.widgets[0].options.values = ["custom", "balanced", "fast"];
      applyDefaultPreset(node);
      return node;
    },
  };
  app.settings["Paceline.DefaultPreset"] = "fast";
  const made = (inputs) => makeNode({ node: "PacelineApplyToMe", inputs }).widgets.map(({ value }) => value);
  assert.deepEqual([made({ ratio: 0.5 }), made({ preset: "balanced" })], [["custom", 0.5], ["balanced", 0.75]]);
});
