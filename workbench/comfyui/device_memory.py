"""Memory on the device that torch's allocator does not count, although sampling takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...core.technique import COMPILATION
from ...optimizers.compilation.policy import CompilePolicy
from ...optimizers.hosts.comfyui.model import stack_of
from ...optimizers.hosts.comfyui.protocols import ModelPatcher


def beside_the_allocator(model: ModelPatcher) -> int:
    """Return bytes of weights that ComfyUI's dynamic VRAM holds on the device of a MODEL, and of its CUDA graphs."""
    import comfy.model_management

    patchers = [loaded.model for loaded in comfy.model_management.current_loaded_models]
    found = sum(
        patcher.loaded_size() - patcher.model.model_loaded_weight_memory
        for patcher in patchers
        if patcher is not None and patcher.load_device == model.load_device and patcher.is_dynamic()
    )
    return int(found) + sum(compilation.held_bytes for compilation in _compilations(model))


@contextmanager
def recordings_kept(*models: ModelPatcher) -> Iterator[None]:
    """Let MODELs that take turns on one network keep their CUDA graphs, instead of recording them in each turn."""
    policies = [policy for model in models for policy in _compilations(model)]
    for policy in policies:
        policy.keeps_recordings = True
    try:
        yield
    finally:
        for policy in policies:
            policy.keeps_recordings = False
            policy.forget_recordings()


def _compilations(model: ModelPatcher) -> list[CompilePolicy]:
    found = stack_of(model).find(COMPILATION)
    return [found.policy] if found is not None and isinstance(found.policy, CompilePolicy) else []
