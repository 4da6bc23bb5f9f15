"""The types of ComfyUI's and diffusers' objects name what these objects really have."""

from __future__ import annotations

import pytest
from comfy_host import checkpoints, vaes


def members(protocol: type) -> set[str]:
    """Return the names of a protocol, with those that it inherits."""
    own = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False) and base.__name__ != "Protocol"]
    return {name for base in own for name in (*base.__annotations__, *vars(base)) if not name.startswith("_")}


def missing(protocol: type, thing: object) -> set[str]:
    return {name for name in members(protocol) if not hasattr(thing, name)}


def test_names_are_found_at_all():
    from paceline.optimizers.hosts.comfyui import protocols

    assert {"model", "clone", "get_model_object"} <= members(protocols.ModelPatcher)
    assert {"diffusion_model", "get_dtype", "named_modules"} <= members(protocols.BaseModel)
    assert missing(protocols.ModelPatcher, object()) == members(protocols.ModelPatcher)


def test_a_model_has_them(studio):
    from paceline.optimizers.hosts.comfyui import protocols

    base = studio.model.model
    assert not missing(protocols.ModelPatcher, studio.model)
    assert not missing(protocols.BaseModel, base)
    assert not missing(protocols.ModelConfig, base.model_config)
    assert not missing(protocols.ModelSampling, base.model_sampling)
    assert not missing(protocols.LatentFormat, base.latent_format)
    assert not missing(protocols.ComfyUNet, base.diffusion_model)


def test_a_vae_has_them(comfy):
    from paceline.optimizers.hosts.comfyui import protocols

    vae = vaes.kl()
    assert not missing(protocols.VAE, vae)
    assert not missing(protocols.NetworkPatcher, vae.patcher)


def test_a_controlnet_has_them(comfy, tmp_path):
    import comfy.controlnet
    from paceline.optimizers.hosts.comfyui import protocols

    control_net = comfy.controlnet.load_controlnet(str(checkpoints.controlnet(tmp_path / "control.safetensors")))
    assert not missing(protocols.ControlNet, control_net)
    assert not missing(protocols.NetworkPatcher, control_net.control_model_wrapped)


@pytest.mark.parametrize(
    ("name", "denoiser", "others"), [("sd15", "unet", "transformer"), ("flux", "transformer", "unet")]
)
def test_a_pipeline_has_them(name, denoiser, others):
    from paceline.optimizers.hosts.diffusers import protocols
    from random_pipelines import small

    pipe = small(name).pipe
    assert missing(protocols.Pipeline, pipe) <= {others}
    assert not missing(protocols.DiffusersScheduler, pipe.scheduler)
    assert not missing(protocols.Model, getattr(pipe, denoiser))
    layers = [module for module in getattr(pipe, denoiser).modules() if hasattr(module, "get_processor")]
    assert layers
    assert not any(missing(protocols.AttentionModule, layer) for layer in layers)
    if denoiser == "unet":
        assert not missing(protocols.DiffusersUNet, pipe.unet)
