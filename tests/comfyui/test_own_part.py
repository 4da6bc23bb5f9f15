"""What our own Python takes in a step, and the benchmark of it: each of its models is what it is called."""

from __future__ import annotations

import torch
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


def test_our_part_of_a_step_enters_few_functions(small, monkeypatch):
    """A count, not a time: it is the same on a busy machine."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import own_part
    from host_time import step_of

    with torch.inference_mode():
        plain = own_part.plain_step(small.model, step_of(small.model, 16))
        steps = {name: step_of(model, 16) for name, model in own_part.models(small.model).items()}
        for step in (plain, *steps.values()):
            for _ in range(3):  # the recording is made at the second
                step()
        most = {own_part.NODE: 180, own_part.REPLAY: 140}
        for name, step in steps.items():
            extra = own_part.python_calls(step) - own_part.python_calls(plain)
            assert 20 < extra <= most[name], (name, extra)
