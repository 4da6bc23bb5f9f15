"""The pack on a ComfyUI that is too old or otherwise strange, and its bookkeeping."""

from __future__ import annotations

import pytest


def test_one_node_that_cannot_be_imported_does_not_cost_the_others(studio, monkeypatch, caplog):
    import asyncio

    import paceline.nodes as nodes

    monkeypatch.setitem(nodes.FILES, "Missing", "no_such_file")
    classes = asyncio.run(nodes.PacelineExtension().get_node_list())
    assert len(classes) == len(nodes.NODES) - 1 + len(nodes.INTERNAL)
    assert "the node Missing cannot be loaded" in caplog.text


def test_a_run_that_is_cancelled_in_its_first_step_is_not_called_idle(studio):
    model = studio.attention(studio.tome(studio.model), "sdpa")
    model.model_options["model_function_wrapper"] = cancel
    with pytest.raises(KeyboardInterrupt):
        studio.sample(model)
    summaries = [technique.last_summary() for technique in model.get_attachment("paceline").techniques]
    assert [(summary.state, summary.headline) for summary in summaries] == [("inactive", "no call was finished")] * 2
    assert "cancelled or failed" in studio.report(model)


def cancel(*_):
    """Press Cancel in the first step."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("node", ["ModelPrecision", "SetAttentionProcessor"])
def test_calls_that_another_nodes_step_cache_has_answered_are_not_counted(studio, node):
    """As EasyCache does: in a wrapper around the network, which then does not run."""
    from comfy.patcher_extension import WrappersMP

    ran, kept = [], []

    def cached(executor, *args, **kwargs):
        if len(kept) != 1:
            ran.append(True)
            kept.append(executor(*args, **kwargs))
        else:
            kept.append(kept[0])
        return kept[-1]

    inputs = {"dtype": "bf16"} if node == "ModelPrecision" else {"backend": "vanilla"}
    model = studio.run(f"Paceline{node}", model=studio.model, **inputs).clone()
    model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "cache", cached)
    studio.sample(model, steps=4)
    (technique,) = model.get_attachment("paceline").techniques
    assert len(kept) == 4 and len(ran) == 3
    assert technique.runs.latest.activity.model_calls == 3


def test_the_report_before_any_sampling_says_so(studio):
    assert "not sampled yet" in studio.report(studio.tome(studio.model))


@pytest.mark.parametrize(
    ("version", "fault", "said"),
    [
        ("0.26.1", "", "Paceline needs ComfyUI 0.27 or newer: update ComfyUI"),
        ("0.99.0", "", "Paceline was tested with 0.27 to "),
        ("0.33.0", "module 'comfy_kitchen' has no attribute 'new'", "It needs another comfy-kitchen than "),
    ],
)
def test_a_comfyui_that_lacks_what_nodes_need_gets_none_and_a_sentence_with_the_cause(
    comfy, monkeypatch, caplog, version, fault, said
):
    import asyncio
    from unittest.mock import Mock

    import comfy.ops
    from paceline.nodes import INTERNAL, NODES, PacelineExtension
    from paceline.workbench.comfyui import machine

    assert len(asyncio.run(PacelineExtension().get_node_list())) == len(NODES) + len(INTERNAL)
    monkeypatch.setattr(machine, "host_version", lambda: version)
    monkeypatch.delattr(comfy.ops, "scaled_dot_product_attention")
    if fault:
        monkeypatch.setattr(machine, "import_module", Mock(side_effect=AttributeError(fault)))
    with caplog.at_level("ERROR"):
        assert asyncio.run(PacelineExtension().get_node_list()) == []
    (message,) = caplog.messages
    assert message.startswith(f"Paceline: This ComfyUI ({version}) has no comfy.")
    assert said in message and (not fault or fault in message)
