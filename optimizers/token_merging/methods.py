"""What a user can choose, by name, and what ``auto`` means: the method for a number of tokens on a device."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.phrases import translatable
from .kv_downsample import KVDownsampling
from .merging import Merging
from .method import Method, Reduction

# CPU: leaving out keys and values shortens a self-attention even at 64 tokens (benchmarks/TRIED.md), but levels that
# coarse are under one per cent of a step and hold the meaning of the picture. Elsewhere: not measured yet; published
# measurements of ToDo against FlashAttention begin to gain at 4096 tokens.
MINIMUM_TOKENS = {"cpu": 256}
MINIMUM_TOKENS_ELSEWHERE = 4096


def minimum_tokens(device_type: str) -> int:
    """Return from how many tokens in a block on leaving out keys and values gains time on a type of devices."""
    return MINIMUM_TOKENS.get(device_type, MINIMUM_TOKENS_ELSEWHERE)


class Automatic(Method):
    """Leave out keys and values wherever that gains something.

    On the trained models measured, that stays nearer to the unreduced picture than merging at the same amount of work
    (benchmarks/TRIED.md). In cross-attention and feed-forward layers only merging makes the tokens fewer.
    """

    name = "auto"
    help = "kv_downsample where that saves time at this image size, nothing elsewhere"
    action = translatable("merge {share:.0%} of the tokens")
    serves_other_layers = True
    uses_cells = True
    can_decline = True

    @classmethod
    def for_block(cls, tokens: int, device_type: str, other_layers: bool) -> type[Reduction] | None:
        """Return the method for a block, or None if it has too few tokens to gain anything.

        The limit is measured on CPUs; on GPUs it stands on published numbers, on the careful side.
        """
        if other_layers:
            return Merging
        return KVDownsampling if tokens >= minimum_tokens(device_type) else None


METHODS: Mapping[str, type[Method]] = {"auto": Automatic, "merge": Merging, "kv_downsample": KVDownsampling}
"""In the order of the node's list."""
