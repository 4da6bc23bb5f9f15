"""What a user can choose about token merging, checked once, before any model is touched; and a ready-made setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..core.errors import InvalidSetting, require_choice
from ..core.phrases import phrase, translatable
from ..core.settings import Settings, choice, number
from .tomesd import LARGEST_STRIDE

MaxDownsample = Literal["auto", 1, 2, 4, 8]
_LEVELS: tuple[MaxDownsample, ...] = get_args(MaxDownsample)

METHODS: Mapping[str, str] = {
    "auto": "kv_downsample where that saves time at this image size, nothing elsewhere",
    "merge": "merges similar tokens (ToMe)",
    "kv_downsample": "leaves out keys and values (ToDo)",
}
"""What a user can choose, in the order of the node's list, and what each does."""

_MERGE = translatable("merge {share:.0%} of the tokens")
_LEAVE_OUT = translatable("leave out {share:.0%} of the keys and values")

TOOLTIPS: Mapping[str, str] = {
    "method": "; ".join(f"{name}: {what}" for name, what in METHODS.items()) + ".",
    "ratio": "Share of the tokens that are merged, or of keys and values that are left out. Higher is faster, "
    "needs less memory and changes the image more; 0 changes nothing.",
    "max_downsample": "Merge in blocks whose resolution is at most this many times below the latent's: higher is a "
    "little faster and changes more. auto: the first level that has attention (1 for SD 1.x, 2 for SDXL).",
    "residual": "Not for merge. Some steps also compute full attention; the loss measured there is added back in "
    "others. The image stays much closer to the plain image, but less time is saved, and memory is needed. "
    "auto: in up to nearly half of the steps. off: reduced attention alone.",
}
"""What a person reads about the settings that every host shows."""


@dataclass(frozen=True)
class TokenMergingSettings(Settings):
    """Settings of token merging (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604) and its relatives.

    Raises `InvalidSetting` if a value is of the wrong type or outside of what is stated here.

    Attributes:
        ratio: share of a block's tokens to merge away, 0 to 1. At most ``1 - 1 / (sx * sy)`` takes effect, because
            destinations are never merged. Recommended: 0.3 to 0.5.
        max_downsample: blocks whose tokens are coarser than the latent by more than this factor are skipped; ``"auto"``
            takes the finest level at which the model has transformer blocks.
        sx, sy: width and height in tokens of the cells that keep one destination each. Recommended: 2.
        use_rand: choose the destination of each cell at random (recommended) instead of its top-left token.
        merge_attn: merge around self-attention. Recommended.
        merge_crossattn: merge around cross-attention. For experiments: it saves little and costs prompt detail.
        merge_mlp: merge around the feed-forward layer. For experiments.
        method: a name of ``METHODS``: ``"auto"``: decided for each block; ``"merge"`` tokens that are alike (ToMe);
            ``"kv_downsample"``: leave out keys and values only (ToDo, https://arxiv.org/abs/2402.13573).
        residual: for fewer keys and values, not for merged tokens: in some steps attention is computed both ways, and
            the difference is added to reduced attention in the others (https://arxiv.org/abs/2406.08552), where that
            costs less than it saves. ``"auto"``: in so many steps that they cost six tenths of what reducing saves;
            ``"off"``: in none. Where it is kept, only the two finest levels of a UNet are reduced, and none whose
            attention that makes no faster here (timed once a process).
        alone: the ratio where the difference cannot be kept, at the finest level alone; None for ``ratio`` at all
            levels. The preset sets it.
    """

    ratio: float = number(0.5, 0.0, 1.0)
    max_downsample: MaxDownsample = choice("auto", _LEVELS)
    sx: int = number(2, 1, LARGEST_STRIDE)
    sy: int = number(2, 1, LARGEST_STRIDE)
    use_rand: bool = True
    merge_attn: bool = True
    merge_crossattn: bool = False
    merge_mlp: bool = False
    method: str = choice("auto", METHODS)
    residual: str = choice("auto", ("auto", "off"))
    alone: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.other_layers and self.method == "kv_downsample":
            layers = " and ".join(self.other_layers)
            raise InvalidSetting(
                f"method is {self.method}, which leaves every query in place: {layers} would have nothing to merge.",
                "Switch merge_crossattn and merge_mlp off, or set method to auto or merge.",
            )

    @property
    def does_something(self) -> bool:
        """Whether any token would be reduced anywhere."""
        return self.ratio > 0 and (self.merge_attn or bool(self.other_layers))

    @property
    def keeps(self) -> bool:
        """Whether the difference that fewer keys make to self-attention is kept, where it can be."""
        return self.residual != "off" and self.does_something and not self.merges

    @property
    def other_layers(self) -> dict[str, str]:
        """The layers of a block beside self-attention that have fewer tokens, by the setting that asks for it."""
        layers = {"merge_crossattn": "attn2", "merge_mlp": "ff"}
        return {name: layer for name, layer in layers.items() if getattr(self, name)}

    @property
    def merges(self) -> bool:
        """Whether tokens are merged, queries too; else only keys and values are left out."""
        return self.method == "merge" or bool(self.other_layers)

    def describe(self) -> str:
        layers = {
            "self-attention": self.merge_attn,
            "cross-attention": self.merge_crossattn,
            "feed-forward": self.merge_mlp,
        }
        around = ", ".join(name for name, on in layers.items() if on) or "nothing"
        parts = [f"around {around}", f"max downsample {self.max_downsample}"]
        if self.merges:
            parts.append(f"cells {self.sx}x{self.sy}, {'random' if self.use_rand else 'top-left'} destinations")
        if self.keeps:
            other = "" if self.alone is None else f" (a ratio of {self.alone:g} where the difference cannot be kept)"
            parts.append(f"residual {self.residual}{other}")
        elif self.merges and self.residual != "off":
            parts.append("no residual (it is for keys and values)")
        action, details = phrase(_MERGE if self.merges else _LEAVE_OUT, share=self.ratio), ", ".join(parts)
        return phrase("{method}: {action}, {details}", method=self.method, action=action, details=details)


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Every second row and column of keys and values.
    "quality": {"method": "kv_downsample", "ratio": 0.75, "max_downsample": 4, "residual": "auto", "alone": 0.5}
}
"""What the preset sets, chosen from benchmarks/results; every other setting keeps the value it was given."""

PRESET_NAMES = ("custom", *PRESETS)


def level_of(text: Any) -> Any:
    """Return the ``max_downsample`` that the text of a control stands for; anything else as it is."""
    return next((level for level in _LEVELS if str(level) == text), text)


def apply_preset(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with what the preset sets in their place; `InvalidSetting` if there is no such preset."""
    require_choice("preset", name, PRESET_NAMES)
    return {**settings, **PRESETS.get(name, {})}
