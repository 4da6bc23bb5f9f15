"""The nodes of the pack: one file each, listed here in the order of the menu."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from comfy_api.latest import ComfyExtension, io

from ..optimizers.core.errors import HostTooOld
from ..service.comfyui.machine import require_host

FILES = {
    "PacelineOptimizePreset": "optimize_preset",
    "PacelineApplyToMe": "apply_tome",
    "PacelineReuseSteps": "reuse_steps",
    "PacelineSetAttentionProcessor": "set_attention_processor",
    "PacelineCompileUNet": "compile",
    "PacelineCompileVAE": "compile",
    "PacelineCompileControlNet": "compile",
    "PacelineCompareModels": "compare_models",
    "PacelineBenchmarkSweep": "benchmark_sweep",
    "PacelineProfile": "compare_models",
    "PacelineQuantizeInt8": "int8",
    "PacelineSaveInt8Model": "int8",
    "PacelineFuseQKV": "fuse_qkv",
    "PacelineModelPrecision": "precision",
    "PacelineVAEPrecision": "precision",
    "PacelineOptimizationReport": "optimization_report",
    "PacelineRemoveOptimizations": "optimization_report",
}
"""Node ids and the modules of this package that they are in."""

INTERNAL = dict.fromkeys(("_PacelineObserved", "_PacelineObservedVAE", "_PacelineTrial"), "faster")
"""Nodes that only prompts of ours have, and no menu."""


class _Nodes(Mapping[str, Any]):
    """Node classes by id, each imported when it is asked for: one that cannot be imported costs only itself."""

    def __getitem__(self, id: str) -> Any:
        return _node(id, FILES[id])

    def __iter__(self) -> Iterator[str]:
        return iter(FILES)

    def __len__(self) -> int:
        return len(FILES)


def _node(id: str, file: str) -> Any:
    return getattr(import_module(f".{file}", __package__), id)


NODES = _Nodes()


class PacelineExtension(ComfyExtension):
    """The extension that hands ComfyUI our nodes."""

    async def on_load(self) -> None:
        try:
            import_module("..service.routes", __package__).register_routes(NODES)
        except Exception:  # as below
            logging.exception("Paceline: the settings page cannot show the cache")

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """Return the node classes; one that cannot be imported is only reported; too old a ComfyUI gets none."""
        try:
            require_host()
        except HostTooOld as error:
            logging.error("Paceline: %s", error)
            return []
        classes: list[type[io.ComfyNode]] = []
        for id, file in (FILES | INTERNAL).items():
            try:
                classes.append(_node(id, file))
            except Exception:  # ComfyUI would swallow the traceback and drop the whole pack
                logging.exception("Paceline: the node %s cannot be loaded", id)
        return classes
