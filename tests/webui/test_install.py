"""The extension as users get it: from its address, into a host that does not have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from comfy_host.paths import ROOT
from webui.host import NAMES, REUSE, needed, running
from webui.page import opened

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there_after_a_restart_and_needs_nothing_else(name: str, tmp_path: Path):
    needed(name)
    data = tmp_path / "data"
    data.mkdir()
    with running(name, data, extensions={}) as host:
        plain = host.draw()
        with opened(host, tmp_path / "browser") as page:
            page.install(ROOT.as_uri())
    with running(name, data, extensions={}) as host:
        assert host.draw() == plain
        host.draw(REUSE)
        assert host.report()["Reuse Steps"]["state"] == "active"
        assert host.draw() == plain
        log = host.log.read_text()
    assert "Traceback" not in log, log[-3000:]
