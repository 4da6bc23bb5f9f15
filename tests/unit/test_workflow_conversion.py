"""A saved workflow becomes the prompt that the frontend would send."""

from __future__ import annotations

from typing import Any

import pytest
from comfy_host.workflow import WorkflowError, to_api

OBJECT_INFO: dict[str, Any] = {
    "Load": {"input": {"required": {"name": [["a.safetensors", "b.safetensors"], {}]}}, "display_name": "Load It"},
    "Patch": {
        "input": {
            "required": {"model": ["MODEL", {}], "ratio": ["FLOAT", {"default": 0.5}]},
            "optional": {"merge": ["BOOLEAN", {"default": True}], "new": ["INT", {"default": 3}]},
        }
    },
    "Sample": {
        "input": {
            "required": {
                "model": ["MODEL", {}],
                "seed": ["INT", {"control_after_generate": True}],
                "steps": ["INT", {}],
                "sampler": ["COMBO", {"options": ["euler", "fixed"]}],
            },
            "optional": {"text": ["STRING", {"forceInput": True}], "extra": ["STRING", {}]},
        }
    },
    "Picture": {"input": {"required": {"image": [["x.png"], {"image_upload": True}], "size": ["INT", {}]}}},
    "Choose": {
        "input": {
            "required": {
                "mode": [
                    "COMFY_DYNAMICCOMBO_V3",
                    {
                        "options": [
                            {"key": "off", "inputs": {"required": {}}},
                            {"key": "on", "inputs": {"required": {"amount": ["FLOAT", {}]}}},
                        ]
                    },
                ],
                "after": ["INT", {}],
            }
        }
    },
    "Points": {"input": {"required": {"points": ["STRING", {}]}}},
}


def node(number: int, kind: str, values: Any = (), inputs: Any = (), outputs: Any = (), mode: int = 0) -> dict:
    return {
        "id": number,
        "type": kind,
        "mode": mode,
        "widgets_values": list(values) if not isinstance(values, dict) else values,
        "inputs": [{"name": n, "type": t, "link": link, **more} for n, t, link, *rest in inputs
                   for more in (rest or [{}])],
        "outputs": [{"name": t, "type": t} for t in outputs],
    }  # fmt: skip


def workflow(*nodes: dict, links: Any = ()) -> dict:
    return {"nodes": list(nodes), "links": [[*link, "ANY"] for link in links], "version": 0.4}


LOAD = node(1, "Load", ["b.safetensors"], outputs=["MODEL"])


def sampler(link: int | None = 1, values: Any = (7, "randomize", 20, "euler", "x"), **more: Any) -> dict:
    return node(3, "Sample", values, [("model", "MODEL", link)], **more)


def test_widgets_links_and_titles():
    prompt = to_api(workflow(LOAD, sampler(), links=[(1, 1, 0, 3, 0)]), OBJECT_INFO)
    assert prompt["1"] == {
        "class_type": "Load",
        "inputs": {"name": "b.safetensors"},
        "_meta": {"title": "Load It"},
    }
    assert prompt["3"]["inputs"] == {
        "model": ["1", 0], "seed": 7, "steps": 20, "sampler": "euler", "extra": "x",
    }  # fmt: skip


def test_a_choice_that_looks_like_a_seed_control_is_kept():
    prompt = to_api(workflow(sampler(None, (7, "fixed", 20, "fixed", "x"))), OBJECT_INFO)
    assert prompt["3"]["inputs"]["sampler"] == "fixed"
    # Saved by a program that wrote no control value.
    prompt = to_api(workflow(sampler(None, (7, 20, "fixed", "x"))), OBJECT_INFO)
    assert prompt["3"]["inputs"] == {"seed": 7, "steps": 20, "sampler": "fixed", "extra": "x"}


def test_a_converted_widget_takes_its_link():
    source = node(2, "Load", ["a.safetensors"], outputs=["INT"])
    target = sampler(1)
    target["inputs"].append({"name": "steps", "type": "INT", "link": 2, "widget": {"name": "steps"}})
    prompt = to_api(workflow(LOAD, source, target, links=[(1, 1, 0, 3, 0), (2, 2, 0, 3, 1)]), OBJECT_INFO)
    assert prompt["3"]["inputs"]["steps"] == ["2", 0]
    assert prompt["3"]["inputs"]["sampler"] == "euler"


def test_primitive_gives_its_value():
    primitive = node(2, "PrimitiveNode", [12, "fixed"], outputs=["INT"])
    target = sampler(None)
    target["inputs"].append({"name": "steps", "type": "INT", "link": 2, "widget": {"name": "steps"}})
    prompt = to_api(workflow(primitive, target, links=[(2, 2, 0, 3, 1)]), OBJECT_INFO)
    assert prompt["3"]["inputs"]["steps"] == 12
    assert "2" not in prompt


def test_notes_and_reroutes_vanish():
    reroutes = [node(n, "Reroute", [], [("", "*", n)], ["*"]) for n in (10, 11)]
    prompt = to_api(
        workflow(
            LOAD, *reroutes, node(20, "Note", ["text"]), node(21, "MarkdownNote", ["text"]), sampler(12),
            links=[(10, 1, 0, 10, 0), (11, 10, 0, 11, 0), (12, 11, 0, 3, 0)],
        ),
        OBJECT_INFO,
    )  # fmt: skip
    assert set(prompt) == {"1", "3"}
    assert prompt["3"]["inputs"]["model"] == ["1", 0]


@pytest.mark.parametrize(("mode", "model"), [(0, ["2", 0]), (4, ["1", 0]), (2, None)])
def test_active_bypassed_and_muted(mode, model):
    patch = node(2, "Patch", [0.5, True], [("model", "MODEL", 1)], ["MODEL"], mode)
    prompt = to_api(workflow(LOAD, patch, sampler(2), links=[(1, 1, 0, 2, 0), (2, 2, 0, 3, 0)]), OBJECT_INFO)
    assert prompt["3"]["inputs"].get("model") == model
    assert ("2" in prompt) == (mode == 0)


def test_inputs_newer_than_the_workflow_get_their_default():
    prompt = to_api(workflow(node(2, "Patch", [0.25])), OBJECT_INFO)
    assert prompt["2"]["inputs"] == {"ratio": 0.25, "merge": True, "new": 3}


def test_upload_button_and_values_by_name_and_lists():
    prompt = to_api(
        workflow(
            node(1, "Picture", ["x.png", "image", 8]),
            node(2, "Picture", {"image": "x.png", "size": 9, "other": 1}),
            node(3, "Points", [[1, 2]]),
        ),
        OBJECT_INFO,
    )
    assert prompt["1"]["inputs"] == {"image": "x.png", "size": 8}
    assert prompt["2"]["inputs"] == {"image": "x.png", "size": 9}
    assert prompt["3"]["inputs"] == {"points": {"__value__": [1, 2]}}


@pytest.mark.parametrize(
    ("values", "inputs"),
    [(["off", 5], {"mode": "off", "after": 5}), (["on", 0.5, 5], {"mode": "on", "mode.amount": 0.5, "after": 5})],
)
def test_dynamic_combo(values, inputs):
    assert to_api(workflow(node(1, "Choose", values)), OBJECT_INFO)["1"]["inputs"] == inputs


def link(number: int, origin: int, slot: int, target: int, target_slot: int) -> dict[str, Any]:
    ends = {"origin_id": origin, "origin_slot": slot, "target_id": target, "target_slot": target_slot}
    return {"id": number, **ends}


INSIDE: dict[str, Any] = {
    "id": "inside",
    "inputs": [{"name": "model", "type": "MODEL"}, {"name": "ratio", "type": "FLOAT"}],
    "nodes": [node(2, "Patch", [0.25, False], [("model", "MODEL", 7), ("ratio", "FLOAT", 8, {"widget": {}})])],
    "links": [link(7, -10, 0, 2, 0), link(8, -10, 1, 2, 1), link(9, 2, 0, -20, 0)],
}
OUTSIDE: dict[str, Any] = {
    "id": "outside",
    "inputs": [{"name": "model", "type": "MODEL"}],
    "nodes": [node(4, "inside", [0.75], [("model", "MODEL", 1)], ["MODEL"])],
    "links": [link(1, -10, 0, 4, 0), link(2, 4, 0, -20, 0)],
}


def with_subgraph(outer: dict[str, Any]) -> dict[str, Any]:
    made = workflow(LOAD, outer, sampler(6), links=[(5, 1, 0, 5, 0), (6, 5, 0, 3, 0)])
    return to_api(made | {"definitions": {"subgraphs": [OUTSIDE, INSIDE]}}, OBJECT_INFO)


@pytest.mark.parametrize(("saved", "ratio"), [([0.75], 0.75), ([], 0.25)])
def test_subgraphs_are_unpacked_with_the_values_saved_outside(saved, ratio):
    prompt = with_subgraph(node(5, "inside", saved, [("model", "MODEL", 5)], ["MODEL"]))
    assert prompt.keys() == {"1", "5:2", "3"}
    assert prompt["5:2"]["inputs"] == {"model": ["1", 0], "ratio": ratio, "merge": False, "new": 3}
    assert prompt["3"]["inputs"]["model"] == ["5:2", 0]


def test_subgraphs_in_subgraphs():
    prompt = with_subgraph(node(5, "outside", [], [("model", "MODEL", 5)], ["MODEL"]))
    assert prompt.keys() == {"1", "5:4:2", "3"}
    assert prompt["5:4:2"]["inputs"]["model"] == ["1", 0] and prompt["5:4:2"]["inputs"]["ratio"] == 0.75
    assert prompt["3"]["inputs"]["model"] == ["5:4:2", 0]


@pytest.mark.parametrize(("mode", "model"), [(4, ["1", 0]), (2, None)])
def test_a_subgraph_bypassed_or_muted_is_left_out(mode, model):
    prompt = with_subgraph(node(5, "inside", [0.75], [("model", "MODEL", 5)], ["MODEL"], mode))
    assert prompt.keys() == {"1", "3"}
    assert prompt["3"]["inputs"].get("model") == model


def test_errors_name_the_node():
    with pytest.raises(WorkflowError, match="Node 5 .* 'Missing'.*node pack"):
        to_api(workflow(node(5, "Missing")), OBJECT_INFO)
    with pytest.raises(WorkflowError, match="no list of nodes"):
        to_api({"1": {"class_type": "Load"}}, OBJECT_INFO)
