"""Every name of ComfyUI that this pack uses, by purpose: a missing name tells what an update has changed.

Version numbers are compared for one warning only. Objects that ComfyUI hands us (MODEL, VAE, ...) are in the host's
``protocols.py``. Tests compare this list with the sources, and hold each line against the ComfyUI they run with.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import reduce
from importlib import import_module, metadata
from typing import Any

from ...core.errors import HostTooOld
from .machine import host_version

MINIMUM_VERSION, NEWEST_TESTED = "0.27", "0.33.0"

_TOUCHES: Mapping[str, Mapping[str, str]] = {
    "hooks into a model call": {
        "comfy.patcher_extension": (
            "CallbacksMP.ON_CLEANUP CallbacksMP.ON_DETACH CallbacksMP.ON_PRE_RUN WrappersMP.APPLY_MODEL "
            "WrappersMP.CALC_COND_BATCH WrappersMP.DIFFUSION_MODEL WrappersMP.OUTER_SAMPLE "
            "WrappersMP.PREDICT_NOISE WrappersMP.PREPARE_SAMPLING WrappersMP.SAMPLER_SAMPLE"
        )
    },
    "attention": {
        "comfy.ldm.modules.attention": ("attention_pytorch optimized_attention.__wrapped__ optimized_attention_masked"),
        "comfy.ldm.modules.diffusionmodules": "model",
        "comfy.ops": "scaled_dot_product_attention",
    },
    "the blocks of a UNet": {
        "comfy.ldm.modules.attention": "SpatialTransformer",
        "comfy.ldm.modules.diffusionmodules.openaimodel": "Downsample ResBlock UNetModel Upsample",
    },
    "clones and second models": {
        "comfy.model_management": (
            "archive_model_dtypes current_loaded_models get_torch_device module_size unload_model_and_clones"
        ),
        "comfy.model_patcher": "CoreModelPatcher ModelPatcher",
    },
    "int8 layers and files": {
        "comfy.ops": "disable_weight_init.Linear mixed_precision_ops",
        "comfy.quant_ops": "QuantizedTensor get_layout_class",
        "comfy.sd": "save_checkpoint",
        "comfy_kitchen.registry": "registry.list_backends",
        "comfy_kitchen.tensor": "register_layout_op",
    },
    "Compile": {"comfy_api.torch_helpers": "set_torch_compile_wrapper"},
    "VAEs and ControlNets": {"comfy.controlnet": "ControlLora ControlNet T2IAdapter", "comfy.sd": "VAE"},
    "the schedule": {
        "comfy.k_diffusion": "sampling",
        "comfy.model_sampling": "CONST ModelSamplingContinuousEDM V_PREDICTION",
        "comfy.samplers": "KSAMPLER",
    },
    "Compare Models and Benchmark Sweep": {
        "comfy.cli_args": (
            "args.disable_metadata args.extra_model_paths_config args.output_directory args.user_directory"
        ),
        "comfy.model_management": "soft_empty_cache unload_all_models",
        "comfy.options": "enable_args_parsing",
        "comfy.sample": "fix_empty_latent_channels prepare_noise sample",
        "comfy.samplers": "KSampler.SAMPLERS KSampler.SCHEDULERS",
    },
    "Cancel and the progress bar": {
        "comfy.model_management": "InterruptProcessingException throw_exception_if_processing_interrupted",
        "comfy.utils": "ProgressBar",
        "comfy_execution.utils": "get_executing_context",
    },
    "folders": {
        "folder_paths": (
            "get_filename_list get_folder_paths get_full_path get_output_directory get_save_image_path "
            "get_system_user_directory get_temp_directory set_output_directory "
            "set_user_directory"
        )
    },
    "nodes": {"comfy_api.latest": "ComfyExtension io", "comfy_execution.graph_utils": "ExecutionBlocker"},
    "Make this workflow faster": {
        "comfy.model_management": "get_free_memory",
        "comfy.nested_tensor": "NestedTensor",
        "comfy.utils": "unpack_latents",
        "comfy_execution.graph_utils": "is_link",
        "execution": "get_input_data get_output_data",
    },
}
"""Attributes of modules, by what they are for and by the module."""

TOUCHES: Mapping[str, tuple[str, ...]] = {
    purpose: tuple(f"{module}:{path}" for module, paths in modules.items() for path in paths.split())
    for purpose, modules in _TOUCHES.items()
}
"""The same as ``module:attribute.attribute``."""

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

_REQUIRED = (
    "comfy.patcher_extension:WrappersMP.APPLY_MODEL",
    "comfy.patcher_extension:CallbacksMP.ON_PRE_RUN",
    "comfy.patcher_extension:CallbacksMP.ON_CLEANUP",
    "comfy.model_patcher:ModelPatcher.set_attachments",
    "comfy.model_patcher:ModelPatcher.remove_wrappers_with_key",
    "comfy.ldm.modules.attention:wrap_attn",
    "comfy.ops:scaled_dot_product_attention",
    "comfy.quant_ops:TensorWiseINT8Layout",
)
"""Without these there are no nodes at all. The last one came with 0.27, whose life cycle of models (dynamic VRAM,
clones) is the oldest that this pack was run against."""


def problem(touch: str) -> str:
    """Return the fault of a line of ``TOUCHES`` or ``PARAMETERS`` in this ComfyUI; empty if there is none."""
    module, _, path = touch.partition(":")
    try:
        found: Any = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        return f"{touch} is missing ({error})"
    if touch not in PARAMETERS:
        return ""
    expected, there = PARAMETERS[touch], list(inspect.signature(found).parameters)
    in_order = [name for name in there if name in expected]
    return "" if in_order == list(expected) else f"{touch} takes {', '.join(there)}, not {', '.join(expected)}"


def require_host() -> None:
    """Raise `HostTooOld`, naming what is missing, why, and what helps, if this ComfyUI lacks what all nodes need."""
    faults = ((touch, problem(touch)) for touch in _REQUIRED)
    touch, fault = next(((touch, fault) for touch, fault in faults if fault), ("", ""))
    if not fault:
        return
    version = host_version()
    if "comfy_kitchen" in fault:
        why = f" It needs another comfy-kitchen than {_installed('comfy-kitchen')}: {fault}."
        remedy = "Install what ComfyUI's requirements.txt names, and restart it."
    elif _numbers(version) < _numbers(MINIMUM_VERSION):
        why = ""
        remedy = f"Paceline needs ComfyUI {MINIMUM_VERSION} or newer: update ComfyUI and restart it."
    else:
        why = f" Paceline was tested with {MINIMUM_VERSION} to {NEWEST_TESTED}."
        remedy = "Update Paceline, and start ComfyUI again."
    raise HostTooOld(f"This ComfyUI ({version}) has no {touch.replace(':', '.')}.{why}", remedy)


def _installed(package: str) -> str:
    try:
        return f"the installed {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return "the one that is there"


def untested() -> str | None:
    """Return a line that names this ComfyUI's version if it is newer than the newest tested one; else None."""
    version = host_version()
    if _numbers(version) <= _numbers(NEWEST_TESTED):
        return None
    text = f"ComfyUI {version} is newer than {NEWEST_TESTED}, the newest that this version of Paceline was tested with"
    wrong = {purpose: [touch for touch in touches if problem(touch)] for purpose, touches in TOUCHES.items()}
    wrong["how functions are called"] = [touch for touch in PARAMETERS if problem(touch)]
    changed = [f"{purpose} ({', '.join(touches)})" for purpose, touches in wrong.items() if touches]
    if changed:
        return f"{text}. It has changed what these need: {'; '.join(changed)}. Update Paceline."
    count = sum(map(len, TOUCHES.values()))
    return f"{text}. All {count} parts of it that are used are there; what they do is untested."


def _numbers(version: str) -> tuple[int, ...]:
    """Return e.g. ``(0, 38, 1)``; nothing for a version without numbers, which is older than all."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
