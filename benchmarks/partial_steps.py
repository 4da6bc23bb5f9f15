"""Running a part of a network's blocks, with what the others gave before in their place: of UNets and of transformers.

*Outer blocks* of a UNet: DeepCache (arXiv 2312.00858). *First blocks* of a transformer: First Block Cache
(ParaAttention, WaveSpeed) and DBCache (cache-dit), which can also run the last ones; with none of the first it is what
TeaCache (arXiv 2411.19108) does: the residual of all blocks is added to the new input.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from paceline.core.shadow import Shadows
from torch import Tensor

Compute = Callable[[], Tensor]
Features = dict[int, Tensor]


class Source(Protocol):
    """Blocks that can run without the others.

    Attributes:
        costs: share of the network's operations in each way.
        kept: what blocks gave in the last evaluation, by number.
    """

    costs: dict[str, float]
    kept: Features

    def attach(self, patcher: Any) -> None:
        """Take part in a model's evaluations."""

    def alone(self, way: str, features: Features, compute: Compute, known: Features | None = None) -> Tensor:
        """Return what ``compute`` gives with some blocks only, and ``features`` in place of what the rest gives.

        ``known``: what all blocks gave in this evaluation, where it was computed: then some need not run again.
        """


def source_of(network: Any) -> Source:
    """Return what there is for a network of ComfyUI's: UNetModel or Flux."""
    return FirstBlocks(network) if hasattr(network, "single_blocks") else OuterBlocks(network)


class OuterBlocks:
    """The outermost blocks of a UNet."""

    def __init__(self, network: Any) -> None:
        self.costs = {"outer blocks, 1": 0.05, "outer blocks, 2": 0.28, "outer blocks, 3": 0.43}
        # Of SD1.5 at 512 x 512: 0.08, 0.22, 0.38. Of SDXL at 1024 x 1024: 0.01, 0.04, 0.07; 6 of its 9 blocks: 0.31.
        self.kept: Features = {}
        self._network, self._skip = network, 0
        for number, block in enumerate(network.output_blocks):
            block[-1].register_forward_hook(lambda *call, number=number: self.kept.__setitem__(number, call[2]))

    def attach(self, patcher: Any) -> None:
        """Take part in a model's evaluations."""
        patcher.set_model_output_block_patch(self._patch)

    def alone(self, way: str, features: Features, compute: Compute, known: Features | None = None) -> Tensor:
        """Return what ``compute`` gives with so many blocks on each side, and ``features`` in place of the rest."""
        count = int(way[-1])
        network, kept, blocks = self._network, dict(self.kept), len(self._network.output_blocks)
        with Shadows() as shadows:
            for block in (*network.input_blocks[count:], network.middle_block, *network.output_blocks[:-count]):
                for layer in block:
                    shadows.put(layer, "forward", _through)
            last = network.output_blocks[blocks - count - 1][-1]
            shadows.put(last, "forward", lambda *_, **__: features[blocks - count - 1])
            self._skip = blocks - count
            found = compute()
        self._skip, self.kept = 0, kept
        return found

    def _patch(self, h: Tensor, skip: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Give blocks that do not run no skip connection: ComfyUI's ``output_block_patch``."""
        return (h, None) if options["block"][1] < self._skip else (h, skip)


def _through(x: Tensor, *_: object, **__: object) -> Tensor:
    return x


class FirstBlocks:
    """The first blocks of a transformer of the form of Flux, and its last ones.

    ``kept`` holds the text's and the picture's tokens before each block and, last, behind all of them.
    """

    def __init__(self, network: Any) -> None:
        self._double = len(network.double_blocks)
        self._count = count = self._double + len(network.single_blocks)
        self._ways = {f"first blocks, {first}": (first, count) for first in (*range(count // 2 + 1), count - 2)}
        for first, last in ((1, 1), (2, 2)):
            self._ways[f"first blocks, {first}, and last, {last}"] = (first, count - last)
        # Blocks are alike: what stands before and behind them takes a hundredth.
        self.costs = {way: (count - stop + start) / count for way, (start, stop) in self._ways.items()}
        self.kept: Features = {}
        self._skipped, self._features = range(0), self.kept

    def attach(self, patcher: Any) -> None:
        """Take part in a model's evaluations."""
        for number in range(self._count):
            kind, place = ("double", number) if number < self._double else ("single", number - self._double)
            patcher.set_model_patch_replace(partial(self._block, number), "dit", f"{kind}_block", place)

    def alone(self, way: str, features: Features, compute: Compute, known: Features | None = None) -> Tensor:
        """Return what ``compute`` gives with some blocks, and the residual of the others by ``features``.

        With ``known`` and no last blocks, only what stands before and behind all blocks runs: the test is free.
        """
        kept, (start, stop) = self.kept, self._ways[way]
        if known is not None and stop == self._count:
            features = {0: known[0], stop: known[start] + features[stop] - features[start]}
            start = 0
        self.kept, self._skipped, self._features = {}, range(start, stop), features
        found = compute()
        self.kept, self._skipped = kept, range(0)
        return found

    def _block(self, number: int, given: dict[str, Any], block: dict[str, Any]) -> dict[str, Tensor]:
        """Run a block or leave it out: ComfyUI's ``patches_replace``."""
        words = given["txt"].shape[1] if "txt" in given else None
        state = given["img"] if words is None else torch.cat([given["txt"], given["img"]], 1)
        if number not in self._skipped:
            self.kept[number] = state.clone()  # blocks add to it in place
            found: dict[str, Tensor] = block["original_block"](given)
            if number == self._count - 1:
                self.kept[self._count] = found["img"].clone()
            return found
        if number == self._skipped[-1]:
            state = state + self._features[self._skipped.stop] - self._features[self._skipped.start]
        return {"img": state} if words is None else {"txt": state[:, :words], "img": state[:, words:]}
