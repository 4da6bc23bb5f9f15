"""Legal values for the inputs of any node, drawn from what the server says about it (``/object_info``)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WIDGETS = ("INT", "FLOAT", "BOOLEAN", "STRING", "COMBO")


@dataclass(frozen=True)
class Input:
    """One input of a node: its name, type, options, and whether it may be left out."""

    name: str
    kind: str
    options: dict[str, Any]
    optional: bool

    @property
    def choices(self) -> list[Any]:
        """The values of a combo."""
        return list(self.options.get("options", ()))


def inputs_of(info: dict[str, Any]) -> Iterator[Input]:
    """Yield the inputs of a node, as ``/object_info`` describes it."""
    for group in ("required", "optional"):
        for name, spec in (info["input"].get(group) or {}).items():
            options = dict(spec[1]) if len(spec) > 1 and isinstance(spec[1], dict) else {}
            if isinstance(spec[0], list):  # the old way to write a combo
                yield Input(name, "COMBO", {**options, "options": spec[0]}, group == "optional")
            else:
                yield Input(name, spec[0], options, group == "optional")


def legal(entry: Input, draw: random.Random) -> Any:
    """Return a value that the schema allows: the default in half of the cases."""
    options = entry.options
    if "default" in options and draw.random() < 0.5:
        return options["default"]
    if entry.kind == "COMBO":
        return draw.choice(entry.choices) if entry.choices else ""
    if entry.kind == "BOOLEAN":
        return draw.random() < 0.5
    if entry.kind == "STRING":
        return options.get("default", "")
    low, high = options.get("min", 0), options.get("max", 1)
    if entry.kind == "INT":
        # Small numbers are what people type, the ends are where faults are.
        near = min(high, low + draw.randrange(8))
        return draw.choice([low, min(high, low + 1), near, draw.randint(low, min(high, low + 64))])
    step = options.get("step") or 0.01
    wide = min(high, max(low, 0) + 10.0)
    value = draw.choice([low if low > -100 else 0.0, wide, draw.uniform(max(low, -wide), wide), draw.random()])
    return min(high, max(low, round(round(value / step) * step, 6)))
