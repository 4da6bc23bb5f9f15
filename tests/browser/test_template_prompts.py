"""Templates become the prompts that the frontend makes of them, so tests/e2e/test_templates.py draws what users do."""

from __future__ import annotations

from typing import Any

import needs
import pytest
from browser.page import Page
from comfy_host import templates
from comfy_host.workflow import to_api

if not templates.installed():
    needs.missing("ComfyUI's templates are not installed: pip install comfyui-workflow-templates-json")


@pytest.mark.thorough
@pytest.mark.parametrize("template", templates.most_used(80), ids=lambda template: template.name)
def test_a_template_becomes_the_prompt_that_the_frontend_makes_of_it(page: Page, client: Any, template: Any):
    workflow = template.workflow()
    ids = [node["id"] for node in templates.nodes_of(workflow)]
    if len(ids) > len({*ids}):
        pytest.skip("two of its nodes have the same id, and the frontend gives one of them another")
    page.load(workflow)
    theirs = page.script("return (await app.graphToPrompt()).output")
    ours = to_api(workflow, client.object_info())
    # The frontend sends what is in a bypassed subgraph of a subgraph too, which nothing uses.
    more = {id: theirs.pop(id) for id in theirs.keys() - ours.keys()}
    assert ours.keys() == theirs.keys()
    assert not [v for node in theirs.values() for v in node["inputs"].values() if is_link(v) and v[0] in more]
    for id, node in theirs.items():
        assert ours[id]["class_type"] == node["class_type"]
        # Some nodes have widgets in the browser alone, which the server does not look at.
        shown = {name: value for name, value in node["inputs"].items() if name in ours[id]["inputs"] or is_link(value)}
        assert ours[id]["inputs"] == shown, node["class_type"]


def is_link(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2
