"""What Quantize int8 will do with a MODEL, from the shapes of its weights and the times that are kept."""

from __future__ import annotations

from collections.abc import Set
from weakref import WeakKeyDictionary

from .....core.activity import Summary
from .....core.phrases import phrase
from ....quantization.before import foretold
from ....quantization.kernels import available
from ....quantization.layers import Chooser, Layer, largest_shape, quantizing_device
from ....quantization.settings import QuantizationSettings
from ..structure.model import describe_model
from ..structure.protocols import BaseModel, ModelPatcher
from .layers import linear_layers, observe, refuse_other_formats
from .linear import FORMAT
from .technique import timings_of

_SEEN: WeakKeyDictionary[BaseModel, list[Layer]] = WeakKeyDictionary()
"""Layers of the networks that were looked at: SDXL's takes about two seconds, and a page asks at each change."""


def said_before(patcher: ModelPatcher, settings: QuantizationSettings, formats: Set[str]) -> Summary:
    """Return what is known before a run; nothing is timed, and no weight is read, so they may be on ``meta``.

    ``formats``: those that layers of the file are quantised in. Raises as `quantize` where it is known that it will.
    """
    timings = timings_of(patcher)
    if FORMAT in formats:
        return Summary("waiting", phrase("computes the file's own int8 layers with the kernel that is quickest here"))
    refuse_other_formats(patcher, formats)
    layers = _layers_of(patcher)
    kernels, largest = available(timings.device)[0], largest_shape(layers)
    timed = [kernel for kernel in kernels if kernel.fast and timings.known(kernel, largest) is not None]
    kernel = timings.fastest(timed, largest)[0] if timed else None
    chooser = Chooser(
        settings,
        None if kernel is None else lambda shape: timings.known(kernel, shape),
        quantizing_device(settings.device, timings.device),
    )
    choices = [chooser.before(layer) for layer in layers]
    return foretold(settings, choices, describe_model(patcher))


def _layers_of(patcher: ModelPatcher) -> list[Layer]:
    if patcher.model not in _SEEN:
        _SEEN[patcher.model] = [layer for layer, _ in linear_layers(patcher, observe(patcher)[0])]
    return _SEEN[patcher.model]
