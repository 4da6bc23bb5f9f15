"""The benchmark of what our own Python takes in a step: each of its models is what it is called."""

from __future__ import annotations

from comfy_host.paths import ROOT


def test_the_benchmark_of_our_own_part_replays_and_computes_nothing(small, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import own_part

    for name, model in own_part.models(small.model).items():
        small.sample(model, steps=4)
        technique = model.get_attachment("paceline").find("compilation")
        (compiled,) = technique.used
        assert not compiled.functions[0].state.graphs and not technique.runs.latest.activity.fallbacks
        assert (compiled.recorded.recorded.replayed if compiled.recorded else 0) == 3 * (name == own_part.REPLAY)
