"""What a user can choose about token merging, checked once, before any model is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidSetting, require_integer, require_number

MaxDownsample = Literal["auto", 1, 2, 4, 8]

LARGEST_STRIDE = 64
"""Largest accepted ``sx`` and ``sy``, in tokens. Far beyond anything useful: 4 already merges 94 % at most."""

LARGEST_SEED = 2**64 - 1
"""Largest accepted seed, the range of the hosts' own seed inputs."""


@dataclass(frozen=True)
class TokenMergingSettings:
    """Settings of token merging (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

    Attributes:
        ratio: share of a block's tokens to merge away, 0 to 1. At most ``1 - 1 / (sx * sy)`` takes effect,
            because destinations are never merged. Recommended: 0.3 to 0.5.
        max_downsample: blocks whose tokens are coarser than the latent by more than this factor are left
            alone; ``"auto"`` takes the finest level at which the model has transformer blocks.
        sx: width in tokens of the cells that keep one destination each. Recommended: 2.
        sy: height in tokens of these cells. Recommended: 2.
        use_rand: choose the destination of each cell at random (recommended) instead of its top-left token.
        seed: selects the random choice; the same seed gives the same choice on every device.
        merge_attn: merge around self-attention. Recommended.
        merge_crossattn: merge around cross-attention. For experiments: it saves little and costs prompt detail.
        merge_mlp: merge around the feed-forward layer. For experiments.
        start_percent: share of the sampling schedule after which merging begins, 0 to 1.
        end_percent: share of the sampling schedule after which merging ends, ``start_percent`` to 1.

    Raises:
        InvalidSetting: if a value is of the wrong type or outside of what is stated above.
    """

    ratio: float = 0.5
    max_downsample: MaxDownsample = "auto"
    sx: int = 2
    sy: int = 2
    use_rand: bool = True
    seed: int = 0
    merge_attn: bool = True
    merge_crossattn: bool = False
    merge_mlp: bool = False
    start_percent: float = 0.0
    end_percent: float = 1.0

    def __post_init__(self) -> None:
        require_number("ratio", self.ratio, 0.0, 1.0)
        allowed: tuple[MaxDownsample, ...] = ("auto", 1, 2, 4, 8)
        # `True == 1`, so the type has to be asked for as well.
        if isinstance(self.max_downsample, bool) or self.max_downsample not in allowed:
            raise InvalidSetting(f"max_downsample is {self.max_downsample!r}.", "It must be one of: auto, 1, 2, 4, 8.")
        require_integer("sx", self.sx, 1, LARGEST_STRIDE)
        require_integer("sy", self.sy, 1, LARGEST_STRIDE)
        require_integer("seed", self.seed, 0, LARGEST_SEED)
        for name in ("use_rand", "merge_attn", "merge_crossattn", "merge_mlp"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidSetting(f"{name} is {value!r}.", "It must be true or false.")
        require_number("start_percent", self.start_percent, 0.0, 1.0)
        require_number("end_percent", self.end_percent, 0.0, 1.0)
        if self.start_percent > self.end_percent:
            raise InvalidSetting(
                f"start_percent is {self.start_percent:g}, after end_percent ({self.end_percent:g}).",
                "Merging must begin before it ends.",
            )

    def describe(self) -> str:
        """Return the settings in one line, leaving out what is at its default."""
        merged = [
            name
            for name, on in (
                ("self-attention", self.merge_attn),
                ("cross-attention", self.merge_crossattn),
                ("feed-forward", self.merge_mlp),
            )
            if on
        ]
        parts = [
            f"merge {self.ratio:.0%} of the tokens",
            f"around {', '.join(merged) or 'nothing'}",
            f"cells {self.sx}x{self.sy}",
            f"random destinations (seed {self.seed})" if self.use_rand else "top-left destinations",
            f"max downsample {self.max_downsample}",
        ]
        if (self.start_percent, self.end_percent) != (0.0, 1.0):
            parts.append(f"from {self.start_percent:.0%} to {self.end_percent:.0%} of sampling")
        return ", ".join(parts)
