"""The modules of this folder by their own names, and what the server says of its nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from comfy_host.client import ComfyClient


@pytest.fixture(scope="session")
def object_info(client: ComfyClient) -> dict[str, Any]:
    """What the server says about all nodes."""
    return client.object_info()
