"""*Paceline: measure* in the real Stable Diffusion WebUI and Forge: it measures the pictures that the host draws."""

from __future__ import annotations

import json
import re
import threading
import urllib.error

import pytest
from waiting import until

pytestmark = pytest.mark.slow


def measured(host, choice, seeds, **options):
    """Return the pictures, the sheet first, and their texts."""
    answer = host.asked(script_name="Paceline: measure", script_args=[choice, seeds], **options)
    return answer["images"], json.loads(answer["info"])["infotexts"]


def seed_of(text):
    return int(re.search(r"Seed: (\d+)", text)[1])


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}], ids=["one", "batch"])
def test_each_seed_is_drawn_without_and_with(host, options):
    batch = options.get("batch_size", 1)
    plain = [host.asked(seed=1 + number * batch, **options)["images"][-batch:] for number in range(2)]
    images, texts = measured(host, "Fastest", 2, **options)
    sides = [images[1 + at : 1 + at + batch] for at in range(0, 4 * batch, batch)]
    assert len(images) == len(texts) == 1 + 4 * batch
    assert [seed_of(text) for text in texts[1::batch]] == [1, 1, 1 + batch, 1 + batch]
    assert ["Paceline: Fastest" in text for text in texts[1::batch]] == [False, True, False, True]
    assert 'Paceline measured: "' in texts[0]
    assert re.search(r" a seed change, \S+ in picture \d, the worst of", texts[0])
    first, with_first, second, with_second = (host.pixels(side) for side in sides)
    assert [first, second] == [host.pixels(pictures) for pictures in plain]
    assert first != with_first and second != with_second
    assert host.draw(**options)[-batch:] == first


def test_what_is_no_choice_is_refused(host):
    for choice, seeds in (("Off", 2), ("Fastest", 1)):
        with pytest.raises(urllib.error.HTTPError) as raised:
            measured(host, choice, seeds)
        assert "InvalidSetting" in raised.value.read().decode()


def test_an_interrupt_ends_it_without_a_verdict(host):
    plain, found = host.draw(), []
    measuring = threading.Thread(target=lambda: found.extend(measured(host, "Fastest", 20)[1]))
    measuring.start()
    assert until(lambda: host.ask("/sdapi/v1/progress")["state"]["job_no"] >= 2)
    host.ask("/sdapi/v1/interrupt", {})
    measuring.join()
    assert found and not any("Paceline measured" in text for text in found)
    assert host.draw() == plain
