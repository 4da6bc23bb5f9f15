"""Graphs for the page: the shipped examples in small, and pieces of script that build others."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from comfy_host.paths import ROOT

BUILD = """
const make = (type, x, y, values) => {
  const node = LiteGraph.createNode(type);
  app.graph.add(node);
  node.pos = [x, y];
  for (const [name, value] of Object.entries(values)) node.widgets.find((w) => w.name === name).value = value;
  return node;
};
const link = (from, output, to, input) => from.connect(output, to, to.inputs.findIndex(({ name }) => name === input));
"""
"""Script with ``make`` and ``link``: put a node into the open graph, connect two."""

TRAINED = """
const loader = make("IconModelLoader", 0, 0, {});
const latent = make("IconEmptyLatent", 0, 170, {});
const positive = make("IconTextEncode", 320, 190, { text: "penguin" });
const negative = make("IconTextEncode", 320, 340, { text: "" });
for (const node of [positive, negative]) link(loader, 1, node, "text_encoder");
const sampled = (node) => {
  link(positive, 0, node, "positive");
  link(negative, 0, node, "negative");
  link(latent, 0, node, "latent_image");
};
"""
"""Script with what the demo's small trained model is sampled with, and ``sampled``: connect it to a node."""

COMPARISON = (
    TRAINED
    + """
latent.widgets.find(({ name }) => name === "batch_size").value = args[1];
[positive.pos, negative.pos] = [[640, 190], [640, 340]];
const first = make(args[2], 320, 0, args[3]);
const attention = make("PacelineSetAttentionProcessor", 640, 0, {});
const report = make("PacelineOptimizationReport", 320, 500, {});
const settings = { seed: 42, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras", most_runs: 0 };
const compare = make("PacelineCompareModels", 1010, 0, { ...settings, ...args[0] });
report.setSize([590, 260]);
link(loader, 0, first, "model");
link(first, 0, attention, "model");
link(loader, 0, compare, "model_baseline");
link(attention, 0, compare, "model_optimized");
sampled(compare);
link(attention, 0, report, "model");
link(compare, 1, report, "after");
return compare.id;
"""
)
"""Two nodes before Compare Models, and the report after it.

Given the settings of Compare Models, the size of the batch, and the first node: its type and its inputs.
"""


def example(name: str, checkpoint: Path) -> dict[str, Any]:
    """Return a shipped workflow, set to the generated checkpoint and a size that a CPU draws in seconds."""
    return _small(ROOT / "example_workflows" / f"{name}.json", checkpoint)


def plain(checkpoint: Path) -> dict[str, Any]:
    """Return text to image without our nodes, as `example`."""
    return _small(ROOT / "tests" / "data" / "text_to_image.json", checkpoint)


def _small(path: Path, checkpoint: Path) -> dict[str, Any]:
    workflow = json.loads(path.read_text(encoding="utf-8"))
    values = {"CheckpointLoaderSimple": {0: checkpoint.name}, "EmptyLatentImage": {0: 128, 1: 192}, "KSampler": {2: 1}}
    workflow["id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, path.stem))
    for node in workflow["nodes"]:
        for index, value in values.get(node["type"], {}).items():
            node["widgets_values"][index] = value
    return workflow
