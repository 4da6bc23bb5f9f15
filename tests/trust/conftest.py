"""One real server with the nodes of these tests, for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from comfy_host.client import ComfyClient
    from comfy_host.server import ComfyServer


@pytest.fixture(scope="session")
def trust_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A running server with small models of many kinds, and faults to order."""
    import hosting

    loras = hosting.write_loras(tmp_path_factory.mktemp("loras"))
    with hosting.trust_server(loras) as server:
        yield server


@pytest.fixture(scope="session")
def trust_client(trust_server: ComfyServer) -> Iterator[ComfyClient]:
    """A client of that server."""
    with trust_server.client() as client:
        yield client


@pytest.fixture(scope="session")
def object_info(trust_client: ComfyClient) -> dict[str, Any]:
    """What the server says about all nodes."""
    return trust_client.object_info()
