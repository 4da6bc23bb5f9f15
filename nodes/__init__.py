"""The ComfyUI face of the pack: one file for each node, listed here in the order of the menu."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

from comfy_api.latest import ComfyExtension, io

from ..core.errors import HostTooOld
from ..workbench.comfyui.touches import require_host, untested

NODES = (
    ("optimize_preset", "PacelineOptimizePreset"),
    ("apply_tome", "PacelineApplyToMe"),
    ("reuse_steps", "PacelineReuseSteps"),
    ("set_attention_processor", "PacelineSetAttentionProcessor"),
    ("compile_unet", "PacelineCompileUNet"),
    ("compile_vae", "PacelineCompileVAE"),
    ("compile_controlnet", "PacelineCompileControlNet"),
    ("compare_models", "PacelineCompareModels"),
    ("benchmark_sweep", "PacelineBenchmarkSweep"),
    ("profile", "PacelineProfile"),
    ("quantize_int8", "PacelineQuantizeInt8"),
    ("save_int8_model", "PacelineSaveInt8Model"),
    ("fuse_qkv", "PacelineFuseQKV"),
    ("model_precision", "PacelineModelPrecision"),
    ("vae_precision", "PacelineVAEPrecision"),
    ("optimization_report", "PacelineOptimizationReport"),
    ("remove_optimizations", "PacelineRemoveOptimizations"),
)


class PacelineExtension(ComfyExtension):
    """Hands ComfyUI our nodes."""

    async def on_load(self) -> None:
        """Answer what our settings page asks; without that, the nodes work all the same."""
        try:
            import_module(".routes", __package__).register_routes()
        except Exception:  # as below
            logging.exception("Paceline: the settings page cannot show the cache")

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """Return the node classes; one that cannot be imported is reported and costs only itself.

        A ComfyUI that is too old gets none of them, and is told so in one sentence.
        """
        try:
            require_host()
        except HostTooOld as error:
            logging.error("Paceline: %s", error)
            return []
        note = untested()
        if note is not None:
            logging.warning("Paceline: %s", note)
        classes: list[type[io.ComfyNode]] = []
        for module, name in NODES:
            try:
                classes.append(load(module, name))
            except Exception:  # ComfyUI would swallow the traceback and drop the whole pack
                logging.exception("Paceline: the node %s cannot be loaded", name)
        return classes


def load(module: str, name: str) -> Any:
    """Import a node and return its class. All nodes that compile are given the same compiler."""
    node = getattr(import_module(f".{module}", __package__), name)
    if module.startswith("compile_"):
        node.compiler = _compiler()
    return node


@cache
def _compiler() -> Any:
    return import_module("..optimizers.hosts.comfyui.compilation.comfy_env", __package__).NodeCompiler()
