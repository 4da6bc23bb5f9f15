"""docs/expected.md says what was estimated from counted work and measured; benchmarks/RESULTS.md is up to date."""

from __future__ import annotations

from typing import Any

import pytest
from comfy_host.paths import ROOT


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from pages import expected

    return expected


def test_the_committed_pages_are_up_to_date(expected: Any) -> None:
    from pages import render_results

    assert expected.PAGE.read_text(encoding="utf-8") == expected.page(), "run python benchmarks/pages/expected.py"
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert results == render_results.page(), "run python benchmarks/pages/render_results.py"


def test_every_record_of_a_row_is_marked(expected: Any) -> None:
    """All rows of the records but those of a technique that is not estimated."""
    marked = {(name, variant) for _, name, variant, _ in expected.OURS}
    left = {
        row["name"]
        for name in {name for name, _ in marked}
        for row in expected.rows(name)
        if (name, row["name"]) not in marked
    }
    assert left == {
        "ComfyUI's TorchCompileModel", "Reuse Steps 0.05", "ComfyUI's EasyCache 0.1", "VAE Precision: channels last",
        "+ Quantize int8", "+ Set Attention Processor", "Apply ToMe quality", "Apply ToMe balanced",
    }  # fmt: skip


def test_a_step_is_the_longer_of_the_cards_and_the_processors_time(expected: Any, monkeypatch: Any) -> None:
    """Numbers by hand: 10 T in products at half of 10 T/s, 1 T in attention at all of it, 3 GB at 70 % of 5 GB/s."""
    card = expected.Card(10e12, 5e9, 24e9, (0.5, 1.0), (1.0, 1.0))
    work = {"products": 1e13, "attention": 1e12, "product_bytes": 1e9, "weight_bytes": 5e8, "other_bytes": 2e9}
    monkeypatch.setitem(expected.COUNTED, "by hand", work | {"kernels": 100.0, "large_kernels": 10.0})
    low, high = expected.step(card, "by hand")
    assert high == pytest.approx(2 + 0.1 + 3 / 3.5)
    assert low == pytest.approx(1 + 0.1 + 2 / 4.5)
    expected.COUNTED["by hand"]["kernels"] = 1e6
    assert expected.step(card, "by hand") == pytest.approx((58.0, 90.0))
    assert expected.step(card, "by hand", compiled=True)[1] == pytest.approx(2 + 0.1 + 1.5 / 3.5)


def test_every_record_is_within_a_factor_of_its_range_and_the_range_is_narrow(expected: Any) -> None:
    records = [(card, expected.row(*row)["seconds_median"], what) for card, *row, what in expected.OURS]
    records += [(card, seconds, what) for card, _, seconds, what in expected.OTHERS]
    for number, (card, seconds, what) in enumerate(records):
        eager = expected.COMFYUI if number < len(expected.OURS) else expected.DIFFUSERS
        low, high = expected.range_of(card, what, eager)
        assert low / 1.3 <= seconds <= 1.3 * high, (card, what)
        assert high / low <= 1.8, (card, what)


def test_weights_that_do_not_fit_come_over_the_bus_and_are_not_compiled(expected: Any) -> None:
    small, large = (expected.Card(1e15, 1e13, memory, (0.5, 1.0)) for memory in (12e9, 80e9))
    work = "Flux.1 dev, 1024 x 1024"
    lacking = expected.COUNTED[work]["weight_bytes"] - 10e9
    assert expected.step(small, work)[0] == pytest.approx(lacking / 25e9)
    assert expected.step(small, work, compiled=True) is None and expected.step(large, work, compiled=True)


@pytest.mark.slow
@pytest.mark.usefixtures("comfy")
def test_operations_are_those_of_comfyuis_network(expected: Any) -> None:
    import expected_work

    found, kept = expected_work.counted("SD 1.5, 512 x 512").quality, expected.COUNTED["SD 1.5, 512 x 512"]
    assert [found[name] for name in ("products", "attention")] == [kept[name] for name in ("products", "attention")]
