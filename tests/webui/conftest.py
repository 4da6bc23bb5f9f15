"""One host at a time: Stable Diffusion WebUI with all of its tests, then Forge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from webui.host import NAMES, Host, needed, running


@pytest.fixture(scope="session", params=NAMES)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the extension, its page, and the extension of the tests."""
    needed(request.param)
    with running(request.param, tmp_path_factory.mktemp(request.param.lower())) as started:
        yield started
