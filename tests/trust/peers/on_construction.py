"""A plugin for pytest: puts techniques that keep every picture on diffusers' models as soon as they are made.

    pytest -p on_construction ...

Whatever another project's tests then do with a model, they do with an optimized one: save, load, copy, move, cast,
fuse, train, compile it, and give it other attention processors. What cannot be optimized, as its weights are not there
yet, is left plain.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests")]

from comfy_host import pack, standins  # noqa: E402

standins.install()
pack.load_pack()

import diffusers  # noqa: E402
from paceline import Attention, FuseQKV, optimize  # noqa: E402
from paceline.optimizers.core.errors import PacelineError  # noqa: E402

SETTINGS = (FuseQKV(), Attention("sdpa_math"))
MODELS = (
    "UNet2DConditionModel", "ControlNetModel", "AutoencoderKL", "FluxTransformer2DModel", "SD3Transformer2DModel",
    "WanTransformer3DModel", "LTXVideoTransformer3DModel", "ZImageTransformer2DModel", "QwenImageTransformer2DModel",
    "SanaTransformer2DModel",
)  # fmt: skip

put_on: Counter[str] = Counter()


def optimizes(kind: type[Any]) -> None:
    """Let every new model of a class be optimized at the end of its construction."""
    made = kind.__init__

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if type(self) is not kind:
            return  # a class of its own calls this one's in the middle of its construction
        for setting in SETTINGS:
            try:
                optimize(self, setting)
            except PacelineError:
                continue
            put_on[f"{kind.__name__}: {type(setting).__name__}"] += 1

    kind.__init__ = init  # type: ignore[misc]


for name in MODELS:
    optimizes(getattr(diffusers, name))


@atexit.register
def _tell() -> None:
    if "PACELINE_PUT_ON" in os.environ:
        Path(os.environ["PACELINE_PUT_ON"]).write_text("\n".join(f"{name}\t{count}" for name, count in put_on.items()))
