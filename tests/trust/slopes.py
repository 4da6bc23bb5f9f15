"""Whether something grows: the slope of a series against its own scatter."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean


def slope(series: Sequence[float]) -> tuple[float, float]:
    """Return the slope per sample and its standard error."""
    count = len(series)
    if count < 4:
        return 0.0, float("inf")
    middle, centre = mean(series), (count - 1) / 2
    spread = sum((index - centre) ** 2 for index in range(count))
    rise = sum((index - centre) * (value - middle) for index, value in enumerate(series)) / spread
    rest = sum((value - middle - rise * (index - centre)) ** 2 for index, value in enumerate(series))
    return rise, (rest / (count - 2) / spread) ** 0.5


def said_of_growth(samples: Sequence[dict[str, float]]) -> str:
    """Return what grows, in a sentence; models that ComfyUI has lost or that leak are counted apart."""
    found = {name: value for name, value in growth(samples).items() if name not in ("lost_by_comfyui", "leaked")}
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:+.3g}" for name, value in found.items())
    return f"Growth over ten graphs, in the second half of the run: {numbers or 'not measured'}."


def growth(samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return what each number grows by per sample, over the second half: the first fills caches."""
    later = samples[len(samples) // 2 :]
    return {name: slope([sample[name] for sample in later])[0] for name in (samples[0] if samples else ())}


def growing(
    samples: Sequence[dict[str, float]], names: Sequence[str], beside: Sequence[dict[str, float]] = ()
) -> list[str]:
    """Return what grows: a slope of more than three times its error, and of more than 2 % over the second half.

    Args:
        samples: one after the other.
        names: what of a sample is looked at.
        beside: samples of the same number of something that grows by itself, whose slope is taken off.
    """
    later, problems = samples[len(samples) // 2 :], []
    for name in names:
        series = [sample[name] for sample in later]
        rise, error = slope(series)
        if beside:
            own, own_error = slope([sample[name] for sample in beside[len(beside) // 2 :]])
            rise, error = rise - own, error + own_error
        if len(series) >= 6 and rise > 3 * error and rise * len(series) > 0.02 * series[0]:
            problems.append(f"{name} grows by {rise:.3g} a sample: {series[0]:g} to {series[-1]:g}")
    return problems
