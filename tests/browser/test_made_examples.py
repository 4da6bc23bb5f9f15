"""The examples that are ComfyUI's own templates, made in its page by the code that the one click inserts with."""

from __future__ import annotations

import asyncio
import json
import uuid
from types import ModuleType
from typing import Any

import pytest
from browser.page import PICTURES, VUE, Page
from cases import often
from comfy_host import templates
from made_examples import MADE, NOTE_TITLE, PACKAGE, VERSION, path_of, same_version, saved

pytestmark = pytest.mark.usefixtures("quiet_console")

INSERT = """
const { insertOn } = await import(`/extensions/${args[0]}/js/faster/insert.js`);
const { locate } = await import(`/extensions/${args[0]}/js/faster/wires.js`);
for (const receivers of args[1]) for (const wire of locate({ name: "model", receivers })) insertOn(wire, args[2]);
"""
"""Put nodes on each wire, as *Keep* does: given our folder, the inputs of each wire, and the nodes."""

NOTE = """
const note = LiteGraph.createNode("MarkdownNote");
app.graph.add(note);
note.title = args[1];
note.widgets[0].value = args[0];
note.setSize([420, 330]);
const others = app.graph.nodes.filter((node) => node !== note);
const left = Math.min(...others.map(({ pos }) => pos[0])), top = Math.min(...others.map(({ pos }) => pos[1]));
note.pos = [left - 480, top];
"""

SWITCH = """
const all = app.rootGraph.nodes.flatMap((node) => node.widgets ?? []);
const widgets = all.filter(({ label }) => args[0].includes(label));
for (const widget of widgets) widget.value = true;
return widgets.map(({ label }) => label);
"""

PROMPT = "return (await app.graphToPrompt()).output"


@pytest.fixture(scope="module")
def known_nodes(comfy: ModuleType) -> None:
    """ComfyUI's nodes, in this process: the one click reads from them where a model is sampled with."""
    import nodes

    asyncio.run(nodes.init_builtin_extra_nodes())


def made(page: Page, name: str) -> dict[str, Any]:
    """Put our nodes into an example's template, and return the prompt of what is open then."""
    from paceline.service.faster.workflow import Workflow

    example = MADE[name]
    (template,) = (one for one in templates.drawing() if one.name == example.template)
    page.load({**template.workflow(), "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name))})
    assert page.script(SWITCH, example.switched) == [*example.switched]
    links = Workflow(page.script(PROMPT)).model_links
    inputs = [[{"node": id, "input": put} for id, put in link.receivers] for link in links]
    page.script(INSERT, page.scripts(), inputs, example.steps)
    source = f"ComfyUI's template *{template.name}*, {PACKAGE} {VERSION}."
    page.script(NOTE, f"## {name}\n\n{example.note}\n\n{source}", NOTE_TITLE)
    page.settle()
    return page.script(PROMPT)


@pytest.mark.usefixtures("known_nodes")
@pytest.mark.parametrize("name", often((), MADE))  # what the click inserts is in test_faster.py
def test_an_example_is_the_template_with_what_the_one_click_inserts(page: Page, name: str):
    if not same_version():
        pytest.skip(f"the examples were made from {PACKAGE} {VERSION}")
    page.use(VUE)
    prompt = made(page, name)
    if PICTURES:
        path_of(name).write_text(json.dumps(page.workflow(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page.load(saved(name))
    assert page.script(PROMPT) == prompt
    ours = [node["class_type"] for node in prompt.values() if node["class_type"].startswith("Paceline")]
    assert ours and len(ours) % len(MADE[name].steps) == 0
