"""What nodes say to wrong choices and numbers and to models that they cannot read, and what passes through."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host import checkpoints, transformers, vaes
from our_nodes import put
from paceline.optimizers.compilation.compile_settings import NetworkSettings
from paceline.optimizers.core.errors import CannotHelp, PacelineError, UnsupportedModel, WrongObject
from paceline.optimizers.precision_policy import PrecisionSettings
from paceline.optimizers.quantization.int8_settings import QuantizationSettings
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings
from paceline.service.comfyui.sampling_job import SamplingJob, decode


def test_a_vae_of_another_family_is_named(studio):
    with pytest.raises(PacelineError, match="latents of 4 channels, and those of this model have 16"):
        decode(vaes.taesd(), torch.zeros(1, 16, 8, 8))


def sampled(model, conditioning, latent):
    job = SamplingJob(conditioning, conditioning, {"samples": latent}, 0, 1, 1.0, "euler", "simple")
    with torch.inference_mode():
        job.sample(model, 0, time.perf_counter, lambda: None)


def test_a_latent_of_another_family_is_named_and_an_empty_one_fits_any(studio):
    model, conditioning = transformers.build("sd3"), transformers.conditioning("sd3")
    sampled(model, conditioning, torch.zeros(1, 4, 16, 16))
    with pytest.raises(PacelineError, match="latent_image has 4 channels, and this model samples latents of 16"):
        sampled(model, conditioning, torch.ones(1, 4, 16, 16))


@pytest.mark.parametrize(("text", "count"), [(torch.zeros(1, 77, 32), 32), (None, 0)])
def test_a_prompt_of_another_family_is_named(studio, text, count):
    with pytest.raises(PacelineError, match=f"has {count} values for each token"):
        sampled(studio.model, [[text, {}]], torch.zeros(1, 4, 16, 16))


SETTINGS: dict[str, tuple[Any, ...]] = {
    "PacelineApplyToMe": (TokenMergingSettings,),
    "PacelineReuseSteps": (StepReuseSettings,),
    "PacelineCompileUNet": (NetworkSettings,),
    "PacelineCompileVAE": (NetworkSettings,),
    "PacelineCompileControlNet": (NetworkSettings,),
    "PacelineQuantizeInt8": (QuantizationSettings,),
    "PacelineModelPrecision": (PrecisionSettings,),
    "PacelineVAEPrecision": (PrecisionSettings,),
}
NO_INPUT = {
    "scope",  # VAEs and ControlNets are compiled whole
    "alone",  # presets set it
}


@pytest.mark.parametrize("node", SETTINGS)
def test_input_and_setting_agree(studio, node):
    inputs = {put.id: put for put in studio.nodes[node].define_schema().inputs}
    for field in (field for owner in SETTINGS[node] for field in fields(owner)):
        put = inputs.get(field.name)
        if put is None:
            assert field.name in NO_INPUT, f"{node} has no input for {field.name}"
            continue
        assert (put.default, type(put.default)) == (field.default, type(field.default)), field.name
        if "choices" in field.metadata:
            assert {*put.options} <= {str(choice) for choice in field.metadata["choices"]}, field.name
        if "minimum" in field.metadata:
            assert field.metadata["minimum"] <= put.min < put.max <= field.metadata["maximum"], field.name


def control(kind: str) -> Callable[[], Any]:
    """Return what makes a CONTROL_NET of a class of ComfyUI's that cannot be compiled."""
    arguments = {"T2IAdapter": (None, 3, 8, "bicubic"), "ControlLora": ({},), "QwenFunControlNet": (torch.nn.ReLU(),)}
    return lambda: getattr(import_module("comfy.controlnet"), kind)(*arguments[kind])


def hunyuan() -> Any:
    """A network whose attention does not reach the override hook."""
    import comfy.model_patcher
    import comfy.supported_models

    config = comfy.supported_models.HunyuanDiT({"depth": 2, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2.0})
    config.set_inference_dtype(torch.float32, None)
    return comfy.model_patcher.CoreModelPatcher(config.get_model({}, ""), torch.device("cpu"), torch.device("cpu"))


def unet() -> Any:
    return checkpoints.tiny_sd15(width=32, context=48)


def vae_of(state: dict[str, Any]) -> Any:
    import comfy.sd

    return comfy.sd.VAE(sd=state)


def in_tiles() -> Any:
    vae = vaes.kl(levels=1)
    vae.handles_tiling = True
    return vae


BOTH = {"compile_decoder": True, "compile_encoder": True}
PIXELS = {"pixel_space_vae": torch.tensor(1.0)}
NOTHING_TO_DO = [
    ("ModelPrecision", unet, {"dtype": "fp32"}, "not worth it here: it computes in fp32 already"),
    ("VAEPrecision", vaes.kl, {"dtype": "fp32"}, "not worth it here: it computes in fp32 already"),
    ("QuantizeInt8", unet, {"exclude": "*"}, "not worth it here: the settings leave no layer to quantise"),
    ("QuantizeInt8", unet, {"device": "gpu"}, "not possible here: device is gpu, but there is no GPU for this model"),
    ("SetAttentionProcessor", unet, {"backend": "sage"}, "not possible here: "),
    ("SetAttentionProcessor", hunyuan, {"backend": "auto"}, "not possible here: HunyuanDiT"),
    ("FuseQKV", lambda: transformers.build("flux"), {}, "not possible here: it computes them together already"),
    ("ApplyToMe", hunyuan, {"preset": "quality", "max_downsample": "auto"}, "not possible here: it is for UNets only"),
    ("CompileVAE", partial(vae_of, PIXELS), BOTH, "not possible here: VAE (Pixelspace"),
    ("CompileVAE", in_tiles, BOTH, "not possible here: VAE (AutoencoderKL) cannot be compiled: it cuts its input"),
    ("CompileVAE", vaes.ltx, BOTH, "not possible here: VAE (VideoVAE) cannot be compiled: it works in chunks of"),
    (
        "CompileControlNet",
        control("T2IAdapter"),
        {},
        "not possible here: This CONTROL_NET is a T2IAdapter, whose network",
    ),
    (
        "CompileControlNet",
        control("ControlLora"),
        {},
        "not possible here: This CONTROL_NET is a ControlLora, which builds",
    ),
    (
        "CompileControlNet",
        control("QwenFunControlNet"),
        {},
        "not possible here: This CONTROL_NET is a QwenFunControlNet",
    ),
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


def test_what_cannot_be_read_is_an_error(studio):
    advanced = type("Advanced", (), {"copy": lambda self: self})()  # of another pack
    for name, inputs, words in (
        ("VAE", {"vae": vae_of({}), **BOTH}, "This VAE is empty"),
        ("ControlNet", {"control_net": advanced}, "Advanced, not one of ComfyUI's own. Load it with"),
    ):
        with pytest.raises(WrongObject, match=words):
            studio.nodes[f"PacelineCompile{name}"].execute(**inputs)


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


class Packed(torch.Tensor):
    """Blocks of 32 values in 34 bytes; ``shape`` is that of the values."""

    @property
    def shape(self):
        return getattr(self, "values", self.size())

    def detach(self):
        made = super().detach()
        made.values = self.shape
        return made


def packed(model):
    """Pack the weights of the blocks, as loaders of GGUF files do; return the MODEL."""
    for module in model.model.diffusion_model.modules():
        if isinstance(module, torch.nn.Linear) and module.weight.shape[1] % 32 == 0:
            rows, columns = module.weight.shape
            weight = torch.zeros(rows, columns // 32 * 34, dtype=torch.uint8).as_subclass(Packed)
            weight.values = torch.Size((rows, columns))
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
            module.weight.values = weight.values
    return model


@pytest.mark.parametrize("name", ["int8", "weight_only", "precision", "fuse"])
def test_techniques_that_read_weights_refuse_them(studio, name):
    model = packed(unet())
    with pytest.raises(UnsupportedModel, match=r"of the class Packed \(.*only the loader.*Load a safetensors file"):
        put(studio, name, model)
