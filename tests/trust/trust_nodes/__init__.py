"""Nodes for tests only: small models of many kinds, faults to order, and a look at what really happened.

ComfyUI loads this folder as a node pack beside ours. Nothing here knows anything of our pack.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[3] / name) for name in ("tests",)]

from comfy_host import slow_kernels  # noqa: E402
from comfy_host.made_nodes import NODES  # noqa: E402

from . import faults, models, others, truth  # noqa: E402, F401 - each makes some nodes

slow_kernels.install()
NODE_CLASS_MAPPINGS = NODES
