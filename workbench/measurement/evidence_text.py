"""The measurements as lines of text below a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .evidence import Evidence
from .quality import Distance


def difference_lines(evidence: Evidence) -> list[str]:
    """Return the distance between the pictures, and the distances that it is compared with."""
    lines = [f"difference{f', {evidence.pictures} together' if evidence.place else ''}: {evidence.difference}"]
    if evidence.place:
        lines.append(f"{evidence.place}: {evidence.judged}")
    if evidence.sound is not None:
        lines.append(f"sound: {evidence.sound}")
    lines.append(f"noise floor: {'; '.join(f'{name}: {far}' for name, far in noise_floor(evidence).items())}")
    if (control := evidence.fewer_steps) is not None:
        lines.append(
            f"fewer steps in the same time ({control.steps} of {control.full_steps}, {control.seconds:.4g} s): "
            f"{control.difference}"
        )
    return lines


def noise_floor(evidence: Evidence) -> dict[str, Distance]:
    """Return the distances that a difference is compared with, those of them that were measured."""
    floor = {"another seed": evidence.seed, "baseline repeated": evidence.repeat, "fp32": evidence.precision}
    return {name: distance for name, distance in floor.items() if distance is not None}


def in_seconds(values: Sequence[float]) -> str:
    """Return the median of seconds, and from where to where they go."""
    between = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    return f"{median(values):.4g} s{between}"
