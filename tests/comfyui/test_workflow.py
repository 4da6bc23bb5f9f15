"""What is asked of a workflow in the API format, and what is changed in it."""

from __future__ import annotations

import pytest
from executing import node
from paceline.core.errors import InvalidSetting
from paceline.faster.workflow import Workflow

pytestmark = pytest.mark.usefixtures("comfy")

WORKFLOW = Workflow(
    {
        "load": node("Load"),
        "faster": node("Faster", model=["load", 0]),
        "more": node("More", model=["faster", 0]),
        "sample": node("Sample", model=["more", 0], text=["encode", 0], steps=20, gone=["nowhere", 0]),
        "encode": node("Encode", clip=["load", 1]),
        "save": node("Save", images=["sample", 0]),
        "alone": node("Note"),
    }
)


def test_what_a_node_needs_and_who_uses_it():
    assert {*WORKFLOW.needed("sample")} == {"sample", "more", "faster", "load", "encode"}
    assert {*WORKFLOW.users(["faster"])} == {"more", "sample", "save"}
    assert WORKFLOW.links("sample") == {"model": ("more", 0), "text": ("encode", 0)}
    assert WORKFLOW.before("sample", "latent", "text") == "encode" and WORKFLOW.before("load", "model") is None


def test_copies_use_each_other_and_the_others_where_they_are():
    changed = WORKFLOW.edited({("sample", "steps"): 10})
    assert WORKFLOW.inputs("sample")["steps"] == 20
    copies = changed.copy({"sample": "new sample", "save": "new save"})
    assert copies["new save"]["inputs"] == {"images": ["new sample", 0]}
    assert copies["new sample"]["inputs"] == {**changed.inputs("sample"), "steps": 10}


def test_a_value_is_known_before_a_run_only_where_nothing_else_makes_it():
    assert WORKFLOW.known(20) == 20
    assert WORKFLOW.known(["sample", 0]) is None and WORKFLOW.known(["nowhere", 0]) is None


def test_a_workflow_of_too_many_nodes_is_refused():
    with pytest.raises(InvalidSetting, match="3001 nodes"):
        Workflow.read({str(number): node("A") for number in range(3001)})
