"""Requests to our routes that a page of another site sends: a browser would send them with the user's rights."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest
from comfy_host.client import without_proxy
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow

# All but the route that WebUI has instead.
COMFYUI = (ROOT / "SECURITY.md").read_text(encoding="utf-8").replace("GET /paceline/report", "")
ROUTES = re.findall(r"`(GET|DELETE|POST) (/paceline/\w+)`", COMFYUI)


def status(address: str, method: str, headers: dict[str, str]) -> int:
    body = b"not JSON" if method == "POST" else None
    request = urllib.request.Request(address, body, {"Content-Type": "text/plain", **headers}, method=method)
    try:
        with without_proxy.open(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_requests_of_other_sites_reach_none_of_our_routes(server, prefix):
    assert len(ROUTES) >= 7
    for method, route in ROUTES:
        address = server.base_url + prefix + route
        assert status(address, method, {"Origin": "http://stranger.example"}) == 403, route
        assert status(address, method, {"Sec-Fetch-Site": "cross-site"}) == 403, route
        assert status(address, method, {"Origin": server.base_url}) == (400 if method == "POST" else 200), route
