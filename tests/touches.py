"""Every name of ComfyUI that this pack uses, by purpose: a missing name tells what an update has changed.

Objects that ComfyUI hands us (MODEL, VAE, ...) are in the host's ``protocols.py``. ``test_touches.py`` compares this
list with the sources, and holds each line against the ComfyUI it runs with.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import reduce
from importlib import import_module

from paceline.workbench.comfyui.machine import missing

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
        "comfy.ldm.modules.diffusionmodules.openaimodel": "UNetModel",
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
        "comfy_kitchen": "int8_linear",
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
        "comfy.cli_args": "args.disable_metadata",
        "comfy.model_management": "soft_empty_cache unload_all_models",
        "comfy.sample": "fix_empty_latent_channels prepare_noise sample",
        "comfy.samplers": "KSampler.SAMPLERS KSampler.SCHEDULERS",
    },
    "Cancel and the progress bar": {
        "comfy.model_management": "InterruptProcessingException throw_exception_if_processing_interrupted",
        "comfy.utils": "ProgressBar",
        "comfy_execution.utils": "get_executing_context",
    },
    "words before a run": {
        "comfy.model_detection": "model_config_from_unet unet_prefix_from_state_dict",
        "comfy.model_management": "unet_dtype unet_manual_cast",
        "comfy.model_patcher": "ModelPatcher",
        "comfy.utils": "calculate_parameters convert_old_quants weight_dtype",
        "folder_paths": "get_full_path",
    },
    "folders": {"folder_paths": ("get_directory_by_type get_save_image_path get_system_user_directory")},
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


def problem(touch: str) -> str:
    """Return the fault of a line of ``TOUCHES`` or ``PARAMETERS`` in this ComfyUI; empty if there is none."""
    fault = missing(touch)
    if fault or touch not in PARAMETERS:
        return fault
    module, _, path = touch.partition(":")
    found = reduce(getattr, path.split("."), import_module(module))
    expected, there = PARAMETERS[touch], list(inspect.signature(found).parameters)
    in_order = [name for name in there if name in expected]
    return "" if in_order == list(expected) else f"{touch} takes {', '.join(there)}, not {', '.join(expected)}"
