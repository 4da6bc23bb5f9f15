"""The settings of Quantize int8."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from ..core.errors import InvalidSetting
from ..core.settings import Settings, choice

_MOST_CHARACTERS = 10_000
_PATTERNS = re.compile(rf"[\w\s.,*?-]{{0,{_MOST_CHARACTERS}}}")


@dataclass(frozen=True)
class Thresholds:
    """The conditions that a layer must meet to be quantised.

    ``max_error``: relative L2 error of its output, at most. ``min_speedup``: float time / int8 time, at least.
    """

    max_error: float
    min_speedup: float


# A layer's own error on Gaussian tokens is about 0.9 %, whatever its size; gated feed-forward outputs have 2 to 3 %.
THRESHOLDS = {
    "quality": Thresholds(max_error=0.012, min_speedup=1.15),
    "balanced": Thresholds(max_error=0.02, min_speedup=1.15),
    "speed": Thresholds(max_error=0.05, min_speedup=1.05),
}


@dataclass(frozen=True)
class QuantizationSettings(Settings):
    """Settings of Quantize int8; `InvalidSetting` if one of them is not allowed.

    Attributes:
        preset: how much error and how little gain a layer may have.
        mode: ``int8`` quantises weights and, for each token, activations (W8A8). ``weight_only`` keeps the arithmetic
            in floating point: for memory, never for speed.
        include: names of layers that are quantised even where they gain nothing, with commas between them. With ``*``
            (any characters) or ``?`` (one) it is the pattern of a whole name; without, any part of a name.
        exclude: likewise, names of layers that stay as they are.
        device: where the weights are quantised.
    """

    preset: str = choice("balanced", THRESHOLDS)
    mode: str = choice("int8", ("int8", "weight_only"))
    include: str = ""
    exclude: str = ""
    device: str = choice("auto", ("auto", "cpu", "gpu"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("include", "exclude"):
            text = getattr(self, name)
            if not _PATTERNS.fullmatch(text):
                raise InvalidSetting(
                    f"{name} is {text[:100]!r}, which is not a list of layer names.",
                    "Write names or shell patterns with commas between them, e.g. *.attn2.*, time_embed*: letters, "
                    f"digits and . _ - * ? are allowed, {_MOST_CHARACTERS} characters at most.",
                )

    @property
    def thresholds(self) -> Thresholds:
        return THRESHOLDS[self.preset]

    def is_included(self, name: str) -> bool:
        return _matcher(self.include).match(name) is not None

    def is_excluded(self, name: str) -> bool:
        return _matcher(self.exclude).match(name) is not None

    def describe(self) -> str:
        parts = [self.preset if self.mode == "int8" else "weight only"]
        parts += [f"{name} {value}" for name in ("include", "exclude") if (value := getattr(self, name))]
        return ", ".join(parts)


@lru_cache(maxsize=16)
def _matcher(patterns: str) -> re.Pattern[str]:
    """Return the regular expression for ``patterns``; ``fnmatch`` makes it of parts that do not backtrack."""
    parts = [part.strip() for part in patterns.split(",")]
    shell = (part if "*" in part or "?" in part else f"*{part}*" for part in parts if part)
    return re.compile("|".join(map(translate, shell)) or "(?!)")
