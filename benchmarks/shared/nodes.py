"""What a variant puts on a MODEL: our nodes and ComfyUI's own, each as a function from MODEL to MODEL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .record import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.pack import load_nodes  # noqa: E402

Apply = Callable[[Any], Any]
"""Makes the MODEL of a variant from the plain one, anew for each run."""


def tome(**settings: Any) -> Apply:
    """Return what puts Apply ToMe on a model: a preset, or settings of one's own."""
    inputs = {"preset": "custom", "method": "auto", "ratio": 0.5, "max_downsample": "auto"} | settings
    return lambda patcher: load_nodes()["PacelineApplyToMe"].execute(model=patcher, **inputs).args[0]


def core_tome(ratio: float) -> Apply:
    """Return what puts ComfyUI's TomePatchModel on a model."""
    from comfy_extras.nodes_tomesd import TomePatchModel

    return lambda patcher: TomePatchModel.execute(patcher, ratio).args[0]


def reused(budget: float) -> Apply:
    """Return what puts Reuse Steps on a model."""
    inputs = {"budget": budget, "forecast": "auto", "reuse_forecast": True, "reuse_guidance": True}
    return lambda patcher: load_nodes()["PacelineReuseSteps"].execute(model=patcher, **inputs).args[0]
