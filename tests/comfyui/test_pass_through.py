"""A node that can do nothing hands on what it was given and says so; with ``strict`` it is an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host import checkpoints, transformers, vaes
from paceline.core.errors import CannotHelp, PacelineError

TOME = {"preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto"}


def t2i_adapter() -> Any:
    import comfy.controlnet

    return comfy.controlnet.T2IAdapter(None, 3, 8, "bicubic", device="cpu")


def hunyuan() -> Any:
    """A network whose attention does not reach the override hook."""
    import comfy.model_patcher
    import comfy.supported_models

    config = comfy.supported_models.HunyuanDiT({"depth": 2, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2.0})
    config.set_inference_dtype(torch.float32, None)
    return comfy.model_patcher.CoreModelPatcher(config.get_model({}, ""), torch.device("cpu"), torch.device("cpu"))


def unet() -> Any:
    return checkpoints.tiny_sd15(width=32, context=48)


def pixels() -> Any:
    import comfy.sd

    return comfy.sd.VAE(sd={"pixel_space_vae": torch.tensor(1.0)})


NOTHING_TO_DO = [
    ("ModelPrecision", unet, {"dtype": "fp32"}, "not worth it here: it computes in fp32 already"),
    ("VAEPrecision", vaes.kl, {"dtype": "fp32"}, "not worth it here: it computes in fp32 already"),
    ("QuantizeInt8", unet, {"exclude": "*"}, "not worth it here: the settings leave no layer to quantise"),
    ("QuantizeInt8", unet, {"device": "gpu"}, "not possible here: device is gpu, but there is no GPU for this model"),
    ("SetAttentionProcessor", unet, {"backend": "sage"}, "not possible here: "),
    ("SetAttentionProcessor", hunyuan, {"backend": "auto"}, "not possible here: HunyuanDiT"),
    ("FuseQKV", lambda: transformers.build("flux"), {}, "not possible here: it computes them together already"),
    ("ApplyToMe", hunyuan, TOME, "not possible here: it is for UNets only"),
    ("CompileVAE", pixels, {"compile_decoder": True, "compile_encoder": True}, "not possible here: VAE (Pixelspace"),
    ("CompileControlNet", t2i_adapter, {}, "not possible here: This CONTROL_NET is a T2IAdapter, whose network runs"),
    ("SaveInt8Model", unet, {"filename_prefix": "int8/none"}, "not possible here: This "),
]


@pytest.mark.parametrize(("name", "given", "settings", "words"), NOTHING_TO_DO)
def test_a_node_that_can_do_nothing_hands_on_what_it_was_given(studio, page_server, name, given, settings, words):
    node = studio.nodes[f"Paceline{name}"].PREPARE_CLASS_CLONE(None)
    node.hidden = SimpleNamespace(unique_id="7")
    put, given = node.define_schema().inputs[0].id, given()
    result = node.EXECUTE_NORMALIZED(**{put: given}, **settings)
    outputs = [output.get_io_type() for output in node.define_schema().outputs]
    assert len(result.args) == len(outputs)
    assert result.args[:1] == ((given,) if outputs else ())
    _, said, _ = page_server.sent[-1]
    assert (said["node"], said["state"]) == ("7", "inactive")
    assert said["headline"].startswith(words)
    assert ";" not in said["headline"]
    assert said["details"][0].endswith(".")
    assert result.ui["text"][0].startswith(words)
    if len(outputs) > 1:
        assert result.args[1] == result.ui["text"][0]
    with pytest.raises(CannotHelp) as raised:  # which ComfyUI tells the page, and the page shows at the node
        node.EXECUTE_NORMALIZED(**{put: given}, strict=True, **settings)
    assert result.ui["text"][0].endswith(str(raised.value))


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("ModelPrecision", {"model": object(), "dtype": "auto"}, "not one of ComfyUI's own model patchers"),
        ("VAEPrecision", {"vae": {}, "dtype": "auto"}, "This VAE is a dict"),
        ("CompileControlNet", {"control_net": object()}, "not one of ComfyUI's own"),
        ("SetAttentionProcessor", {"model": object(), "backend": "auto"}, "not one of ComfyUI's own"),
    ],
)
def test_what_the_user_must_mend_is_an_error(studio, page_server, name, inputs, message):
    with pytest.raises(PacelineError, match=message):
        studio.nodes[f"Paceline{name}"].execute(**inputs)
    assert page_server.sent == []


def test_a_compilation_that_must_not_fall_back_is_an_error(studio):
    node = studio.nodes["PacelineCompileUNet"]
    settings = {"model": unet(), "mode": "reduce-overhead"}
    assert node.execute(**settings, strict=False).args[0] is not settings["model"]
    with pytest.raises(CannotHelp, match="mode reduce-overhead was asked for"):
        node.execute(**settings, strict=True)


def test_every_node_that_changes_something_has_the_input_last_and_off(studio):
    """Behind all others: values of old workflows are a list without names."""
    from paceline.nodes.common import OptimizingNode

    changing = {name for name, node in studio.nodes.items() if issubclass(node, OptimizingNode)}
    assert changing >= {"PacelineApplyToMe", "PacelineOptimizePreset", "PacelineCompileVAE", "PacelineSaveInt8Model"}
    for name in changing:
        inputs = studio.nodes[name].define_schema().inputs
        strict = inputs[-1]
        assert (strict.id, strict.default, strict.optional, strict.advanced) == ("strict", False, True, True)
