"""The inputs that the nodes that compile share."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..core.errors import require_choice
from ..optimizers.compilation.settings import BACKENDS, NetworkSettings
from .common import TechniqueNode, setting_input

_setting = partial(setting_input, NetworkSettings)


class CompileNode(TechniqueNode):
    """A node that compiles."""

    @classmethod
    def execute(cls, strict: bool = False, **inputs: Any) -> io.NodeOutput:
        """Run the node; a compilation that fails later stops a strict one too."""
        return cls.attempt(strict, {**inputs, "strict": strict})


def network_settings(**settings: Any) -> NetworkSettings:
    """Return how to compile, from the values of :func:`compile_inputs`; `InvalidSetting` if one is not allowed."""
    backend = settings.get("backend", NetworkSettings.backend)
    if backend not in BACKENDS:
        from torch._dynamo import list_backends  # takes a second, and only who calls the API asks for others

        require_choice("backend", backend, tuple(list_backends(exclude_tags=())))
    return NetworkSettings(**settings)


def compile_inputs(*further: io.Input) -> list[io.Input]:
    """Return the inputs that say how to compile; ``further`` ones of a node stand behind ``mode``."""
    return [
        io.Combo.Input(
            "backend",
            options=list(BACKENDS),
            default=NetworkSettings.backend,
            advanced=True,
            tooltip="inductor: generates code for this device. aot_eager, eager: trace only, without a gain in "
            "speed, to find the cause of a problem.",
        ),
        _setting(
            "mode",
            "default: compiles fastest; max-autotune-no-cudagraphs: tries out kernels for minutes and may run faster. "
            "reduce-overhead, max-autotune: use CUDA graphs and more memory, NVIDIA only.",
        ),
        *further,
        _setting(
            "preset",
            "diffusion-fast: inductor options of Hugging Face's recipe of that name, for this network only. Compiles "
            "longer; for GPUs.",
            advanced=True,
        ),
        _setting(
            "dynamic",
            "auto: compiled for the first size, and once more for all sizes when it changes. true: for all sizes at "
            "once, a little slower; false: for each size and prompt length separately.",
            advanced=True,
        ),
        _setting(
            "fullgraph",
            "Fail where the network cannot be compiled as one graph. Off: such places run uncompiled, and the report "
            "counts them.",
            advanced=True,
        ),
        _setting(
            "channels_last",
            "Store images with their channels last in memory. Faster or slower, depending on the device; the image "
            "changes by rounding only.",
            advanced=True,
        ),
        _setting(
            "recompile_limit",
            "How many variants (sizes, batches, sets of patches) may be compiled; each takes some memory. Beyond that, "
            "new variants run uncompiled.",
            advanced=True,
        ),
    ]
