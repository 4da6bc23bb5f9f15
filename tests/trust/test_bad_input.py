"""A sample of bad inputs to our nodes, and requests of other sites' pages. ``make trust`` gives all of them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest
from comfy_host.client import without_proxy
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow


def test_bad_input_gets_a_clear_answer(client, object_info):
    from bad_inputs import Cases, answer

    unclear = []
    for case in Cases(object_info).some(20, seed=1):
        kind, message = answer(client, case)
        if kind == "unclear":
            unclear.append(f"{case.node}: {case.what}: {message}")
    assert not unclear, "\n".join(unclear)


@pytest.mark.parametrize(
    "message",
    [
        "'NoneType' object has no attribute 'shape'",
        "mat1 and mat2 shapes cannot be multiplied (4x8 and 9x3)",
        "ValueError: nothing",
        "No such file: /home/me/ComfyUI/x",
        "",
        "x" * 2000,
    ],
)
def test_the_rule_finds_what_a_newcomer_cannot_read(message):
    from bad_inputs import unclear

    assert unclear(message)
    assert unclear("ratio is 7. It must be a number from 0 to 1.") is None


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
