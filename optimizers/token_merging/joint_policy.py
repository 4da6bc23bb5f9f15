"""Apply ToMe in diffusion transformers, without a host: fewer image keys and values; text and queries stay whole.

Keys carry their place in the picture as a rotation (RoPE), so image tokens are left out and never averaged: the mean of
keys that were rotated by different angles points to no place at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.activity import Activity
from ...core.errors import UnsupportedModel
from ...core.phrases import phrase
from .method import Reduction
from .methods import METHODS
from .policy import ALL_KEPT, TokenMergingPolicy
from .settings import TokenMergingSettings

_WHOLE = "the difference cannot be kept here, and without it attention stays whole: to thin it, set residual to off"
SAME_SIZE = "calls over the image and over other tokens have the same number of tokens, so they cannot be told apart"


@dataclass(frozen=True)
class Grid:
    """The tokens of one picture or video: frame by frame, row by row."""

    frames: int
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        return self.frames * self.rows * self.columns

    def kept(self, method: type[Reduction], ratio: float, device: torch.device) -> Tensor:
        """Return the places that stay, int64: a coarser grid of each frame."""
        frames = torch.arange(self.frames, device=device)[:, None] * (self.rows * self.columns)
        return (frames + method.kept_tokens(self.rows, self.columns, ratio, device)).flatten()


@dataclass(frozen=True)
class Layout:
    """The tokens of one attention call: ``[before, image, references, behind]``.

    Attributes:
        before: text before the image; 0 where attention is over the image alone.
        references: pictures behind it that the model is shown, each on a grid of its own.
        behind: text behind the image, or what the network adds at the end.
    """

    before: int
    image: Grid
    references: tuple[Grid, ...] = ()
    behind: int = 0

    @property
    def tokens(self) -> int:
        return self.before + sum(grid.tokens for grid in (self.image, *self.references)) + self.behind

    def kept(self, method: type[Reduction], ratio: float, device: torch.device) -> Tensor:
        """Return the places that stay, int64: all before and behind, and a coarser grid of each picture."""
        parts, start = [torch.arange(self.before, device=device)], self.before
        for grid in (self.image, *self.references):
            parts.append(start + grid.kept(method, ratio, device))
            start += grid.tokens
        return torch.cat([*parts, torch.arange(start, self.tokens, device=device)])


class JointMergingPolicy(TokenMergingPolicy):
    """Apply ToMe in one diffusion transformer; `UnsupportedModel` for settings that cannot be done there.

    ``max_downsample``, ``level_decay``, ``sx``, ``sy``, ``use_rand`` and ``seed`` have no meaning there: all blocks
    have one resolution, nothing is matched.

    Args:
        model: for errors.
        places: the name of the places that can have fewer keys, in the plural.
        where: which attention calls are reduced, in words.
        notes: what else is to be said.
    """

    def __init__(
        self,
        model: str,
        settings: TokenMergingSettings,
        places: str,
        total_places: int,
        where: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(settings.on_transformers(), places, total_places)
        if not self.method.works_after_rope:
            able = " or ".join(name for name, method in METHODS.items() if method.works_after_rope)
            raise UnsupportedModel(
                f"method is {settings.method}, but {model} is a diffusion transformer: where its attention can be "
                "reached, keys already carry their place in the picture, and tokens of different places cannot be "
                "averaged.",
                f"Set method to {able}, which leave out keys and values instead.",
            )
        if self.other_layers:
            raise UnsupportedModel(
                f"{' and '.join(settings.other_layers)} cannot be used with {model}: of a diffusion transformer, only "
                "keys and values of the attention over the image can be reduced.",
                "Switch it off.",
            )
        self.where, self.notes = where, notes
        self._prepared: dict[tuple[type[Reduction], Layout, torch.device, bool], Tensor] = {}

    def clauses(self) -> tuple[str, ...]:
        schedule = "".join(f", {part}" for part in self.settings.describe_schedule())
        what = phrase(
            "{method}: leave out {share:.0%} of the image keys and values{schedule}",
            method=self.settings.method,
            share=self.settings.ratio,
            schedule=schedule,
        )
        where = f" ({self.where})" if self.where else ""
        reached = f"eligible: {self.total_places} {self.places}{where}"
        return (
            what,
            reached,
            "text and queries stay whole, max_downsample does not apply",
            *self.settings.describe_residual(),
            *self.notes,
        )

    def kept(
        self, method: type[Reduction], layout: Layout, device: torch.device, with_residual: bool = False
    ) -> Tensor:
        """Return which keys of a call stay; ``with_residual``: where the difference is kept or added."""
        return layout.kept(method, self.settings.ratio_at(1, 1, with_residual), device)

    def prepare(
        self, method: type[Reduction], layout: Layout, device: torch.device, with_residual: bool = False
    ) -> Tensor:
        """Return `kept`, made once for a sampling run."""
        key = (method, layout, device, with_residual)
        if key not in self._prepared:
            self._prepared[key] = self.kept(*key)
        return self._prepared[key]

    def all_stay(self, with_residual: bool) -> str:
        """Return why all keys of a call stay, where they do."""
        return ALL_KEPT if with_residual or self.settings.residual == "off" else _WHOLE

    def ended(self) -> None:
        super().ended()
        self._prepared.clear()

    def saved(self, activity: Activity) -> tuple[str, ...]:
        return tuple(
            f"{before} -> {after}: {1 - after / before:.0%} less work in attention; other layers as before"
            for before, after in activity.token_sizes()
        )


def without(kept: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, axis: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return keys, values and attention mask of the tokens that stay: ``kept``, int64 ``[kept]``.

    The tokens are along ``axis`` of ``k`` and ``v``, and the last one of ``mask``, where 1 stands for all of them.
    """
    if mask is not None and mask.shape[-1] != 1:
        mask = mask.index_select(-1, kept)
    return k.index_select(axis, kept), v.index_select(axis, kept), mask
