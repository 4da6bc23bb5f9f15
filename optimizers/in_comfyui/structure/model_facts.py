"""What a MODEL is, and whether it is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ...core.errors import WrongObject, kind_of
from .protocols import ModelPatcher, Options, Patcher

FOREIGN_COMPILE = "torch.compile"
"""Under this key ComfyUI's TorchCompileModel and other packs put their own compile wrapper on a model."""


def is_compiled_by_others(transformer_options: Options) -> bool:
    """Return whether another node's wrapper compiles the network."""
    from comfy.patcher_extension import WrappersMP

    return bool(transformer_options.get("wrappers", {}).get(WrappersMP.APPLY_MODEL, {}).get(FOREIGN_COMPILE))


def first_of(patcher: Patcher) -> Patcher:
    """Return the MODEL that all others on the same BaseModel were cloned from.

    ComfyUI puts a clone's parent in its place when the clone is dropped while loaded. Where both go in one garbage
    collection, as after an error, ComfyUI believes from then on that the BaseModel has leaked, and collects garbage
    before each model that it loads. The first MODEL is what the loader's output holds.
    """
    model = patcher.model
    while patcher.parent is not None and patcher.parent.model is model:
        patcher = patcher.parent
    return patcher


def describe_model(patcher: object) -> str:
    """Return the model's name for messages, e.g. ``SDXL (UNetModel)``."""
    model = getattr(patcher, "model", None)
    network = getattr(model, "diffusion_model", None)
    if model is None or network is None:
        return type(patcher).__name__
    return f"{type(model).__name__} ({type(network).__name__})"


def is_unet(patcher: ModelPatcher) -> bool:
    """Return whether the model is of ComfyUI's UNet class (SD 1.x, SD 2.x, SDXL, SVD, ...)."""
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel

    return isinstance(patcher.model.diffusion_model, UNetModel)


def is_flow(patcher: ModelPatcher) -> bool:
    """Return whether the model was trained by flow matching: noise takes the place of the picture in its latents."""
    from comfy.model_sampling import CONST

    return isinstance(patcher.get_model_object("model_sampling"), CONST)


def inference_dtype(patcher: ModelPatcher) -> torch.dtype:
    """Return the dtype a model computes in, which can differ from the one its weights are stored in.

    What ModelComputeDtype asks for does not count: while its MODEL is loaded, it stands on the model of all others too.
    """
    loaded: torch.dtype | None = getattr(patcher.model, "manual_cast_dtype", None)
    manual = patcher.object_patches_backup.get("manual_cast_dtype", loaded)
    return patcher.model.get_dtype() if manual is None else manual


def kept_memory() -> AbstractContextManager[object]:
    """Return the context in which to allocate, inside of a network's block, what is kept after the block.

    Since 0.34 ComfyUI takes back the memory that some networks' blocks allocate when the block ends.
    """
    if torch.compiler.is_compiling():  # allocates where the graph does
        return nullcontext()
    pause: Callable[[], AbstractContextManager[object]] | None
    pause = getattr(sys.modules.get("comfy.model_prefetch"), "pause_malloc_graph", None)
    return nullcontext() if pause is None else pause()


def require_model(patcher: object) -> None:
    """Raise `WrongObject` unless ``patcher`` is a MODEL with a diffusion network inside."""
    needed = ("clone", "model_options", "add_wrapper_with_key", "set_attachments")
    missing = [name for name in needed if not hasattr(patcher, name)]
    if missing or getattr(getattr(patcher, "model", None), "diffusion_model", None) is None:
        found = f"a {describe_model(patcher)}" if hasattr(patcher, "model") else kind_of(patcher)
        lacking = f" (it has no {', '.join(missing)})" if missing else ""
        raise WrongObject(
            f"This MODEL is {found}, not one of ComfyUI's own model patchers{lacking}.",
            "Load the model with a ComfyUI loader, or ask the maker of this loader to hand out a ModelPatcher.",
        )
