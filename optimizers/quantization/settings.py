"""What a person can choose about int8 quantisation."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import InvalidSetting, require_choice
from ...core.name_pattern import name_pattern
from ...core.phrases import joined, phrase, translatable

PRESETS = ("quality", "balanced", "speed")
MODES = ("int8", "weight_only")
ROTATIONS = ("auto", "off")
DEVICES = ("auto", "cpu", "gpu")


@dataclass(frozen=True)
class Thresholds:
    """What a preset asks of a layer.

    Attributes:
        max_error: relative L2 error of the layer's output, at most.
        min_speedup: float time / int8 time of the layer, at least.
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
class QuantizationSettings:
    """Settings of Quantize int8.

    Attributes:
        preset: how much error and how little gain a layer may have.
        mode: ``int8`` quantises weights and, for each token, activations (W8A8). ``weight_only`` keeps the arithmetic
            in floating point: for memory, never for speed.
        include: regular expression (what ``name_pattern`` reads); layers whose name it matches are quantised even
            where they gain nothing.
        exclude: likewise; layers whose name it matches stay as they are.
        rotation: ``auto`` rotates (ConvRot) the inputs of layers that have too large an error otherwise.
        device: where the weights are quantised.

    Raises:
        InvalidSetting: if one of them is not allowed.
    """

    preset: str = "balanced"
    mode: str = "int8"
    include: str = ""
    exclude: str = ""
    rotation: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        require_choice("preset", self.preset, PRESETS)
        require_choice("mode", self.mode, MODES)
        require_choice("rotation", self.rotation, ROTATIONS)
        require_choice("device", self.device, DEVICES)
        for name in ("include", "exclude"):
            pattern = getattr(self, name)
            try:
                name_pattern(pattern)
            except ValueError as error:
                raise InvalidSetting(
                    phrase(
                        "{name} is {value}, which is not a regular expression that can be used here: {error}.",
                        name=name,
                        value=repr(pattern[:100]),
                        error=str(error),
                    ),
                    translatable(
                        "Name layers by parts of their names, e.g. attn1 or ff\\.net, with | between alternatives; . "
                        "[] ^ $ are allowed, * + ? after one character, and groups without a repeat."
                    ),
                ) from None

    @property
    def thresholds(self) -> Thresholds:
        """What the preset asks of a layer."""
        return THRESHOLDS[self.preset]

    def is_included(self, name: str) -> bool:
        """Return whether a layer is named by ``include``."""
        return bool(self.include) and name_pattern(self.include)(name)

    def is_excluded(self, name: str) -> bool:
        """Return whether a layer is named by ``exclude``."""
        return bool(self.exclude) and name_pattern(self.exclude)(name)

    def describe(self) -> str:
        """Return the settings in one line, e.g. ``balanced, rotation auto``."""
        parts = [self.preset if self.mode == "int8" else translatable("weight only")]
        parts += [f"{name} {value}" for name in ("include", "exclude") if (value := getattr(self, name))]
        if self.mode == "int8" and self.rotation == "off":
            parts.append(translatable("no rotation"))
        return joined(", ", parts)
