"""The demo's trained model, loaded as its node does."""

from __future__ import annotations

import importlib.util
from typing import Any

from comfy_host.paths import ROOT

ICONS = ROOT / "benchmarks/weights/icons32.safetensors"
"""Of a model in which another seed is another picture."""


def load(*weights: Any) -> Any:
    """Return the MODEL, and a function from a text to its conditioning; ``weights`` may name another file."""
    spec = importlib.util.spec_from_file_location("icon_nodes_model", ROOT / "tools/demo/icon_nodes/model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(*weights)
