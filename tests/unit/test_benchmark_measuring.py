"""What the benchmarks measure with: operations are counted, and times are held to what the device allows."""

from __future__ import annotations

import json
import sys

import pytest
import torch
import torch.nn.functional as F
from comfy_host.paths import ROOT

TOKENS, CHANNELS, HEADS = 64, 32, 4


@pytest.fixture(scope="module", autouse=True)
def benchmarks():
    sys.path.append(str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def attend(x, weight):
    q, k, v = (F.linear(x, weight).unflatten(2, (HEADS, -1)).transpose(1, 2) for _ in range(3))
    return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operations_are_those_of_projections_and_attention(device):
    """Also where attention is fused on a processor, which torch by itself counts as nothing."""
    from shared.roof import operations

    x, weight = torch.randn(2, TOKENS, CHANNELS, device=device), torch.randn(CHANNELS, CHANNELS, device=device)
    with torch.inference_mode():
        counted = operations(lambda: attend(x, weight))
    assert counted == 2 * (3 * 2 * TOKENS * CHANNELS**2 + 4 * TOKENS**2 * CHANNELS)


def test_a_row_without_a_time_has_no_number_in_its_place(tmp_path, monkeypatch, capsys):
    from shared.record import Row, report

    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "quantization.py"), "--quick"])
    report([Row("int8", "quality", quality={"psnr": 31.0})], "float32", tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["rows"][0]["seconds_median"] is None
    assert content["command"] == "python benchmarks/quantization.py --quick"
    assert "| variant | psnr |\n|---|---:|\n| **quality** | |\n| int8 | 31 |\n" in capsys.readouterr().out


def test_fewer_steps_are_a_line_from_one_number_of_steps_to_the_next():
    """Never rounded down to whole steps, and nothing is said where the plain model was not measured."""
    from shared.distances import over_fewer_steps

    fewer = [
        {"evaluations": 10, "psnr": 30.0, "psnr_worst": 20.0},
        {"evaluations": 12, "psnr": 34.0, "psnr_worst": 22.0},
    ]
    found = over_fewer_steps({"evaluations": 11.5, "psnr": 40.0, "psnr_worst": 21.0}, fewer)
    assert found == {"gain": 7.0, "gain_worst": -0.5}
    assert over_fewer_steps({"evaluations": 12.5, "psnr": 40.0, "psnr_worst": 21.0}, fewer) == {}
    assert over_fewer_steps({"evaluations": 9.5, "psnr": 40.0, "psnr_worst": 21.0}, fewer) == {}
