"""All example workflows, in the order in which they are written."""

from __future__ import annotations

from collections.abc import Callable

from . import combined, first_steps, measuring
from .graph import Graph

EXAMPLES: dict[str, Callable[[Graph], None]] = {
    make.__name__: make
    for make in (
        first_steps.txt2img_baseline,
        first_steps.txt2img_tome_attention,
        first_steps.reuse_steps,
        first_steps.img2img_preset,
        first_steps.inpaint,
        combined.sdxl_full_recipe,
        combined.controlnet,
        combined.lora_int8_compile,
        combined.flux_kv_downsample,
        measuring.compare,
        measuring.sweep,
        measuring.profile,
    )
}
"""By file name, without ``.json``."""
