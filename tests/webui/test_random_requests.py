"""A few of the requests of ``make trust``: random requests, each followed by the plain picture."""

from __future__ import annotations

import pytest
from trust.webui_requests import Judge, Requests

pytestmark = pytest.mark.slow


def test_after_random_requests_the_plain_picture_is_the_old_one(host):
    requests, judge = Requests(host), Judge(host)
    for seed in range(10):
        request = requests.request(seed)
        assert request == requests.request(seed)
        assert not judge.judge(request).problems, request
