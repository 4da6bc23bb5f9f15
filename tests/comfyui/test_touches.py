"""Every name of ComfyUI that this pack uses is there: one that is missing tells what an update has changed.

Objects that ComfyUI hands us (MODEL, VAE, ...) are in the host's ``protocols.py``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import reduce
from importlib import import_module

from comfy_host.paths import ROOT
from paceline.service.comfyui.machine import missing

# What our patches of a UNet's attention read of what they are told, as ``extra_options``.
OPTIONS = {
    *("activations_shape", "block", "block_index", "cond_or_uncond", "n_heads", "sample_sigmas", "sigmas"),
    *("transformer_index", "uuids", "wrappers"),
}
HOST = ("comfy", "comfy_api", "comfy_execution", "comfy_kitchen", "execution", "folder_paths")


def touched() -> set[str]:
    """Return what our sources import of ComfyUI, and the attributes that they look up on it, as ``module:path``."""
    found: set[str] = set()
    for folder in ("optimizers", "measure", "service", "nodes"):
        for path in (ROOT / folder).rglob("*.py"):
            tree, names = ast.parse(path.read_text(encoding="utf-8")), {}
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    hosts = [alias for alias in node.names if alias.name.split(".")[0] in HOST]
                    names |= {alias.asname or alias.name.split(".")[0]: alias for alias in hosts}
                    names = {
                        name: alias if isinstance(alias, str) else alias.name if alias.asname else name
                        for name, alias in names.items()
                    }
                elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in HOST:
                    names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
            for node in ast.walk(tree):
                chain: list[str] = []
                while isinstance(node, ast.Attribute):
                    chain, node = [node.attr, *chain], node.value
                if chain and isinstance(node, ast.Name) and node.id in names:
                    found.add(".".join([names[node.id], *chain]))
    return found


PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "comfy.model_base:BaseModel.apply_model": ("x", "t", "c_concat", "c_crossattn", "control", "transformer_options"),
    "comfy.ldm.modules.attention:attention_pytorch": (
        *("q", "k", "v", "heads", "mask", "attn_precision", "skip_reshape", "skip_output_reshape"),
    ),
    "comfy.ldm.modules.attention:CrossAttention.forward": ("x", "context", "value", "mask", "transformer_options"),
    "comfy.model_patcher:ModelPatcher.clone": ("disable_dynamic", "model_override"),
    "comfy.model_patcher:ModelPatcher.add_wrapper_with_key": ("wrapper_type", "key", "wrapper"),
    "comfy.ops:scaled_dot_product_attention": ("q", "k", "v"),
    "comfy.sample:prepare_noise": ("latent_image", "seed"),
    "comfy.samplers:CFGGuider.outer_sample": (
        *("noise", "latent_image", "sampler", "sigmas", "denoise_mask", "callback", "disable_pbar", "seed"),
    ),
    "comfy.samplers:KSAMPLER.sample": (
        *("model_wrap", "sigmas", "extra_args", "callback", "noise", "latent_image", "denoise_mask"),
    ),
    "execution:get_input_data": ("inputs", "class_def", "unique_id", "execution_list"),
    "execution:get_output_data": ("prompt_id", "unique_id", "obj", "input_data_all", "v3_data"),
    "comfy.sample:sample": (
        *("model", "noise", "steps", "cfg", "sampler_name", "scheduler", "positive", "negative", "latent_image"),
        *("denoise", "disable_pbar", "seed"),
    ),
}
"""Parameters that functions must have in this order, others may stand between."""


def place_of(name: str) -> str:
    """Return ``module.attribute`` as ``module:attribute``; of a module, its name."""
    module, path = name, ""
    while module.count("."):
        try:
            import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            path = f"{last}.{path}".rstrip(".")
    return f"{module}:{path}" if path else module


def problem(touch: str) -> str:
    """Return what is wrong with a name or with the parameters of a function in this ComfyUI; empty if nothing is."""
    fault = missing(touch) if ":" in touch else ""
    if fault or touch not in PARAMETERS:
        return fault
    module, _, path = touch.partition(":")
    found = reduce(getattr, path.split("."), import_module(module))
    expected, there = PARAMETERS[touch], list(inspect.signature(found).parameters)
    in_order = [name for name in there if name in expected]
    return "" if in_order == list(expected) else f"{touch} takes {', '.join(there)}, not {', '.join(expected)}"


def test_everything_that_is_touched_is_there_and_takes_what_it_is_given(studio):
    names = {place_of(name) for name in touched()} | PARAMETERS.keys()
    assert len(names) > 50
    assert not [fault for name in sorted(names) if (fault := problem(name))]


def test_patches_are_told_what_we_read(studio):
    seen: list[set[str]] = []

    def look(q, k, v, extra_options):
        seen.append(set(extra_options))
        return q, k, v

    model = studio.model.clone()
    model.set_model_attn1_patch(look)
    studio.sample(model, steps=1)
    assert seen
    assert not OPTIONS - set.intersection(*seen)
