"""Where the tokens of the image are among the keys of one attention call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from ....families.family import TEXT_FIRST, TokenLayout
from ....token_merging import kept_tokens

SAME_SIZE = "text and image have the same number of tokens, so their attention calls cannot be told apart"


@dataclass(frozen=True)
class Grid:
    """The tokens of one picture or video: frame by frame, row by row."""

    frames: int
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.frames * self.rows * self.columns

    def kept(self, ratio: float, device: torch.device) -> torch.Tensor:
        """Return the places that stay, int64: a coarser grid of each frame."""
        frames = torch.arange(self.frames, device=device)[:, None] * (self.rows * self.columns)
        return (frames + kept_tokens(self.rows, self.columns, ratio, device)).flatten()


@dataclass(frozen=True)
class Layout:
    """The tokens of one model call: ``[text, image, references, padding]``.

    Attributes:
        text: tokens before the image; 0 where attention is over the image alone.
        image: the picture or video that is denoised.
        references: pictures behind it that the model is shown, each on a grid of its own.
        padding: tokens at the end that the network adds.
    """

    text: int
    image: Grid
    references: tuple[Grid, ...] = ()
    padding: int = 0

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.text + sum(grid.tokens for grid in (self.image, *self.references)) + self.padding

    def kept(self, ratio: float, device: torch.device) -> torch.Tensor:
        """Return the places that stay, int64: all of text and padding, a coarser grid of each picture."""
        parts, start = [torch.arange(self.text, device=device)], self.text
        for grid in (self.image, *self.references):
            parts.append(start + grid.kept(ratio, device))
            start += grid.tokens
        return torch.cat([*parts, torch.arange(start, self.tokens, device=device)])


@dataclass(frozen=True)
class ExpectedCalls:
    """The attention calls a model call is expected to make.

    Attributes:
        eligible: layouts of the calls to reduce, by their number of tokens.
        ordinary: numbers of tokens of calls that are none of our business (the text with itself, refiners).
        ambiguous: numbers of tokens that both have.
    """

    eligible: Mapping[int, Layout]
    ordinary: frozenset[int]
    ambiguous: frozenset[int]


def expected_calls(tokens: TokenLayout, network: Any, shapes: Mapping[str, Sequence[int]]) -> ExpectedCalls:
    """Work out the tokens of one model call from the sizes of what the network is given.

    Args:
        tokens: how the network lays out its tokens.
        network: the live network, asked for its patch size.
        shapes: see ``ModelCall.shapes``.
    """
    patch = network.patch_size
    sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
    image = _grid(shapes["x"], sides)
    references = tuple(_grid(shape, sides) for shape in _listed(shapes, "ref_latents")) if tokens.references else ()
    parts = [shapes[name][1] for name in ("c_crossattn", *tokens.more_text) if name in shapes]
    texts = {*parts, sum(parts)}
    text, padding = sum(parts), 0
    multiple = getattr(network, "pad_tokens_multiple", None)
    if multiple is not None:
        text = math.ceil(text / multiple) * multiple
        padding = -image.tokens % multiple
        texts.add(text)
    alone, joint = Layout(0, image, (), padding), Layout(text, image, references, padding)
    chosen = [joint] if tokens.layout == TEXT_FIRST else [alone]
    if tokens.image_attention:
        chosen.append(alone)
    eligible = {layout.tokens: layout for layout in chosen}
    # Only calls over the image alone can be taken for others: a joint call has more tokens than either part. Where both
    # kinds are reduced (SD3), the text has no calls of its own that reach the hook.
    sizes = set() if tokens.image_attention else {size for size, layout in eligible.items() if layout.text == 0}
    return ExpectedCalls(eligible, frozenset(texts | {alone.tokens}), frozenset(sizes & texts))


def _grid(latent: Sequence[int], patch: Sequence[int]) -> Grid:
    """Return the tokens of a latent ``[batch, channels, (frames,) height, width]``, padded to whole patches."""
    rows, columns = math.ceil(latent[-2] / patch[-2]), math.ceil(latent[-1] / patch[-1])
    frames = math.ceil(latent[-3] / (patch[0] if len(patch) == 3 else 1)) if len(latent) == 5 else 1
    return Grid(frames, rows, columns)


def _listed(shapes: Mapping[str, Sequence[int]], name: str) -> Iterator[Sequence[int]]:
    """Yield the sizes of the tensors of a list."""
    for number in count():
        if f"{name}[{number}]" not in shapes:
            return
        yield shapes[f"{name}[{number}]"]
