"""Nodes for tests only: small models of many kinds, faults to order, and a look at what really happened.

ComfyUI loads this folder as a node pack beside ours. Nothing here knows anything of our pack.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[3] / name) for name in ("tools", "tests")]

from .faults import TrustFault, TrustWrongType  # noqa: E402
from .models import TrustControlNet, TrustHint, TrustLatent, TrustMask, TrustModel, TrustVAE  # noqa: E402
from .truth import TrustKeep, TrustMemory, TrustSteps, TrustTruth  # noqa: E402

NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in (
        TrustModel,
        TrustVAE,
        TrustControlNet,
        TrustLatent,
        TrustMask,
        TrustHint,
        TrustFault,
        TrustWrongType,
        TrustTruth,
        TrustSteps,
        TrustKeep,
        TrustMemory,
    )
}
