"""Apply ToMe with ``residual`` on diffusion transformers, beside the same by hand."""

from __future__ import annotations

import pytest
from cases import often
from compiled_models import state
from distances import close
from transformer_calls import HALVES, NAMES, oracle, sample, with_override

FULL = (0, 1, 2)
"""Of eight steps, those in which attention is computed both ways."""


def by_hand(name):
    """An override that adds to reduced attention what reducing took away in the last full step."""
    reduced_override, kept, sigmas, calls = oracle(name, borders=False), {}, [], []

    def override(func, q, k, v, heads, *mask, **kwargs):
        sigma = float(kwargs["transformer_options"]["sigmas"][0])
        if sigma not in sigmas:
            sigmas.append(sigma)
            calls.clear()
        calls.append(None)
        reduced = reduced_override(func, q, k, v, heads, *mask, **kwargs)
        if len(sigmas) - 1 not in FULL:
            return reduced + kept[len(calls)]
        whole = func(q, k, v, heads, *mask, **kwargs)
        kept[len(calls)] = whole - reduced
        return whole

    return override


@pytest.mark.parametrize("name", often(("flux", "wan", "sd35_medium"), NAMES))
def test_it_is_the_difference_of_the_last_full_step(studio, zoo, name):
    model = studio.tome(zoo(name), **HALVES, residual="auto")
    found = sample(name, model, steps=8)
    assert close(found, sample(name, with_override(zoo(name), by_hand(name)), steps=8))
    assert not close(found, sample(name, studio.tome(zoo(name), **HALVES), steps=8))
    (technique,) = model.get_attachment("paceline").techniques
    outcome = technique.policy.residuals.counts
    assert (outcome.full, outcome.added) == (3, 5) and not outcome.left_out and outcome.drifts


@pytest.mark.slow
@pytest.mark.parametrize("name", often(("flux",), ("flux", "wan", "sd35_medium")))
def test_compiled_it_is_the_same_from_two_graphs(studio, zoo, name, fresh_compiler):
    tome = studio.tome(zoo(name), **HALVES, residual="auto")
    model = studio.run("PacelineCompileUNet", model=tome, backend="eager", scope="whole_model")
    expected = sample(name, tome, steps=8)
    for _ in range(2):
        assert close(sample(name, model, steps=8), expected)
    assert state(model).graphs == 2 and "left out" not in studio.report(model)
