"""The examples that are ComfyUI's own templates with our nodes put in: which, and what was put in.

`tests/browser/test_made_examples.py` makes them in the page, by the code that *Make this workflow faster* inserts with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from comfy_host.paths import ROOT

FOLDER = ROOT / "example_workflows"

PACKAGE, VERSION = "comfyui-workflow-templates-json", "0.1.27"
"""Where the templates are from, under the MIT licence: ``example_workflows/README.md``."""

NOTE_TITLE = "Paceline"
"""Of our note."""

COMPILE, INT8 = {"node": "PacelineCompileUNet", "inputs": {}}, {"node": "PacelineQuantizeInt8", "inputs": {}}
ATTENTION = {"node": "PacelineSetAttentionProcessor", "inputs": {"backend": "kitchen"}}
REUSE = {"node": "PacelineReuseSteps", "inputs": {}}

KITCHEN = (
    "*kitchen* is ComfyUI's own int8 attention, which is approximate. We have run it on no card, so compare a picture "
    "with *auto* first."
)


@dataclass(frozen=True)
class Made:
    """One example.

    Attributes:
        template: name of the template.
        note: what our note beside it says, in Markdown.
        steps: the nodes that go on each wire to a sampler, in order.
        switched: labels of the template's switches that are on in ours.
    """

    template: str
    note: str
    steps: tuple[Mapping[str, Any], ...]
    switched: tuple[str, ...] = field(default=())


MADE: Mapping[str, Made] = {
    "Z-Image Turbo": Made(
        "image_z_image_turbo",
        "Of eight steps **Reuse Steps** could skip at most two, so here each step is made shorter instead. **Quantize "
        "int8** computes the linear layers that are faster in int8 on your card, and no others. **Compile UNet** "
        "takes a minute or more with the first picture and gains with each later picture.",
        (INT8, COMPILE),
    ),
    "Krea 2 Turbo": Made(
        "image_krea2_turbo_t2i",
        "The file has 8-bit weights already and takes eight steps. **Compile UNet** remains: it takes a minute or "
        "more with the first picture and gains with each later picture.",
        (COMPILE,),
    ),
    "Wan 2.2 with its turbo LoRA": Made(
        "video_wan2_2_14B_t2v",
        "The template's own switch *enable_turbo_mode* is **on**: 4 steps instead of 20, which is most of the gain. "
        "**Set Attention Processor** computes the attention of both models in int8 (*kitchen*), and **Compile UNet** "
        f"compiles the rest. {KITCHEN}",
        (ATTENTION, COMPILE),
        ("enable_turbo_mode",),
    ),
    "LTX-2.3": Made(
        "video_ltx2_3_t2v",
        "Eight steps at half the size and three at full size, with one model: one row of nodes serves both samplers. "
        "**Set Attention Processor** computes attention in int8 (*kitchen*), and **Compile UNet** compiles the rest. "
        f"{KITCHEN}",
        (ATTENTION, COMPILE),
    ),
    "MiniMax H3": Made(
        "video_minimax_h3_t2v",
        "20 steps. **Set Attention Processor** computes attention in int8 (*kitchen*), and **Reuse Steps** skips steps "
        "whose result it can forecast within its budget. With a turbo LoRA it skips at most two of 8 steps, one of 5 "
        f"to 7, and none of 4. {KITCHEN}",
        (ATTENTION, REUSE),
    ),
    "Qwen-Image 2512": Made(
        "image_qwen_Image_2512",
        "50 steps. **Reuse Steps** skips steps whose result it can forecast within its budget, and **Compile UNet** "
        "makes the others shorter. With the template's own switch to the Lightning LoRA there are 4 steps, of which "
        "**Reuse Steps** skips none.",
        (COMPILE, REUSE),
    ),
}
"""By the name of the file."""


def same_version() -> bool:
    """Return whether the templates that the examples were made from are installed."""
    try:
        return version(PACKAGE) == VERSION
    except PackageNotFoundError:
        return False


def path_of(name: str) -> Path:
    """Return the file of an example."""
    return FOLDER / f"{name}.json"


def saved(name: str) -> dict[str, Any]:
    """Return an example as it is saved."""
    return json.loads(path_of(name).read_text(encoding="utf-8"))
