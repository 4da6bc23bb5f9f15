"""What the nodes that compile share: their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from comfy_api.latest import io

from ..core.errors import require_choice
from ..optimizers.compilation.settings import (
    BACKENDS,
    CUDA_GRAPH,
    DYNAMIC,
    MODES,
    ON_ERROR,
    PRESETS,
    RECOMPILE_LIMITS,
    CompileSettings,
    NetworkSettings,
)
from .common import TechniqueNode

# A recording of our own is made for a sampler's steps; torch's own CUDA graphs are there for the others.
METHOD_MODES = tuple(mode for mode in MODES if mode != CUDA_GRAPH)


class CompileNode(TechniqueNode):
    """A node that compiles."""

    @classmethod
    def execute(cls, strict: bool = False, **inputs: Any) -> io.NodeOutput:
        """Run the node; who asks for an error where compiling fails gets one where it cannot begin."""
        return super().execute(strict or inputs.get("on_error") == "raise", **inputs)


def network_settings(
    channels_last: bool = NetworkSettings.channels_last, scope: str = NetworkSettings.scope, **settings: Any
) -> NetworkSettings:
    """Return how to compile, from the values of :func:`compile_inputs`.

    Raises:
        InvalidSetting: for anything that is not allowed; of backends, those that torch has registered are.
    """
    backend = settings.get("backend", CompileSettings.backend)
    if backend not in BACKENDS:
        from torch._dynamo import list_backends  # takes a second, and only who calls the API asks for others

        require_choice("backend", backend, tuple(list_backends(exclude_tags=())))
    return NetworkSettings(CompileSettings(**settings), scope, channels_last)


def compile_inputs(
    modes: Sequence[str] = METHOD_MODES,
    after_mode: Sequence[io.Input] = (),
    tooltips: Mapping[str, str] = MappingProxyType({}),
) -> list[io.Input]:
    """Return the inputs that say how to compile.

    Args:
        modes: values of the input ``mode``.
        after_mode: further inputs of the node.
        tooltips: by input, in the place of those for any network.
    """
    inputs: list[Any] = [
        io.Combo.Input(
            "backend",
            options=list(BACKENDS),
            default=CompileSettings.backend,
            tooltip="inductor: generates code for this device. aot_eager, eager: trace only, without a gain in "
            "speed, to find the cause of a problem.",
        ),
        io.Combo.Input(
            "mode",
            options=list(modes),
            default=CompileSettings.mode,
            tooltip="default: compiles fastest; max-autotune-no-cudagraphs: tries out kernels for minutes and may "
            "run faster. reduce-overhead, max-autotune: use CUDA graphs and more memory, NVIDIA only.",
        ),
        *after_mode,
        io.Combo.Input(
            "preset",
            options=list(PRESETS),
            default=CompileSettings.preset,
            advanced=True,
            tooltip="diffusion-fast: inductor options of Hugging Face's recipe of that name, for this network only. "
            "Compiles longer; for GPUs.",
        ),
        io.Combo.Input(
            "dynamic",
            options=list(DYNAMIC),
            default=CompileSettings.dynamic,
            advanced=True,
            tooltip="auto: compiled for the first size, and once more for all sizes when it changes. true: for all "
            "sizes at once, a little slower; false: for each size separately.",
        ),
        io.Boolean.Input(
            "fullgraph",
            default=CompileSettings.fullgraph,
            advanced=True,
            tooltip="Fail where the network cannot be compiled as one graph. Off: such places run uncompiled, and "
            "the report counts them.",
        ),
        io.Boolean.Input(
            "channels_last",
            default=NetworkSettings.channels_last,
            advanced=True,
            tooltip="Store images with their channels last in memory. Faster or slower, depending on the device; the "
            "image changes by rounding only.",
        ),
        io.Int.Input(
            "recompile_limit",
            default=CompileSettings.recompile_limit,
            min=RECOMPILE_LIMITS[0],
            max=RECOMPILE_LIMITS[1],
            advanced=True,
            tooltip="How many variants (sizes, batches) may be compiled; each takes some memory. Beyond that, new "
            "variants run uncompiled.",
        ),
        io.Combo.Input(
            "on_error",
            options=list(ON_ERROR),
            default=CompileSettings.on_error,
            advanced=True,
            tooltip="fallback: if compiling fails, run uncompiled and say why. raise: stop with the reason.",
        ),
    ]
    for entry in inputs:
        entry.tooltip = tooltips.get(entry.id, entry.tooltip)
    return inputs
