"""The extension beside what else changes a picture in the real hosts: afterwards the picture is the old one."""

from __future__ import annotations

import re
import threading

import pytest
from waiting import until
from webui.host import ALL, MERGE, REUSE, trouble

pytestmark = pytest.mark.slow

WIDE = {"width": 256, "height": 128, "steps": 3}
"""What HyperTile cuts into tiles: it cuts nothing smaller."""


def only(host, name, why):
    if host.name != name:
        pytest.skip(why)


def changed_and_back(host, arguments, other, same=False, **options):
    """Draw plain, with something else, with both and back again, and return what ours says beside the other."""
    plain, theirs = host.draw(**options), host.draw(**options, **other)
    assert theirs != plain
    both = host.draw(arguments, **options, **other)
    said = host.report()
    assert both != plain and (both == theirs) == same
    assert host.draw(**options, **other) == theirs
    assert host.draw(**options) == plain
    return said


def test_beside_controlnet(host):
    only(host, "FORGE", "ControlNet is an extension of its own in this host")
    names = host.ask("/controlnet/model_list")["model_list"]
    picture = host.asked(width=128, height=128, steps=2)["images"][0]
    unit = {"enabled": True, "module": "None", "image": picture, "save_detected_map": False}
    unit["model"] = next(name for name in names if name.startswith("control"))
    said = changed_and_back(host, ALL, {"alwayson_scripts": {"ControlNet": {"args": [unit]}}}, steps=14)
    assert {one["state"] for one in said.values()} == {"active"}
    assert said["Reuse Steps"]["counts"]["forecast"] > 0


def test_beside_hypertile(host):
    only(host, "WEBUI", "this host has no HyperTile")
    host.ask("/sdapi/v1/options", {"hypertile_enable_unet": False, "hypertile_max_tile_unet": 256})
    merged = host.draw(MERGE, **WIDE)
    tiles = {"override_settings": {"hypertile_enable_unet": True, "hypertile_max_tile_unet": 128}}
    said = changed_and_back(host, MERGE, tiles, same=True, **WIDE)
    assert "HyperTile is on" in str(said["Apply ToMe"]["details"])
    said = changed_and_back(host, REUSE, tiles, **WIDE | {"steps": 12})
    assert said["Reuse Steps"]["counts"]["forecast"] > 0
    assert host.draw(MERGE, **WIDE) == merged


def test_nothing_is_in_place_while_it_is_off_and_something_while_it_is_on(host):
    def in_place(arguments):
        return re.search(r"Trouble: ([\w+]+)", host.asked(arguments, steps=2, **trouble(look=True))["info"])[1]

    assert [in_place(off) for off in ((), (False, "Fastest"), (True, "Off"))] == ["nothing"] * 3
    assert {"forward", "func"} <= set(in_place(ALL).split("+"))


def test_switched_off_in_the_middle_of_a_picture(host):
    """By *Extensions*, for the next start, and for the next picture."""
    plain, accelerated, found = host.draw(), host.draw(ALL, steps=20), []
    drawing = threading.Thread(target=lambda: found.extend(host.draw(ALL, steps=20)))
    drawing.start()
    assert until(lambda: host.ask("/sdapi/v1/progress")["state"]["sampling_step"] > 1)
    try:
        host.ask("/sdapi/v1/options", {"disabled_extensions": ["paceline"]})
        assert host.draw((False,)) == plain
    finally:
        drawing.join()
        host.ask("/sdapi/v1/options", {"disabled_extensions": []})
    assert found == accelerated
    assert host.draw() == plain
