"""What ``auto`` means: the method for a number of tokens on a device, from measurements."""

from __future__ import annotations

# Below these many tokens, attention costs less than what reducing it costs. CPU: benchmarks/token_reduction.py, the
# smallest level at which thinning out keys and values still shortened a block. Elsewhere: not measured yet on our own
# machines; published measurements of ToDo against FlashAttention begin to gain at 4096 tokens (SD 1.5, 512 x 512).
MINIMUM_TOKENS = {"cpu": 256}
MINIMUM_TOKENS_ELSEWHERE = 4096


def choose_method(tokens: int, device_type: str) -> str | None:
    """Return the method for a block with this many image tokens, or None if it is better left alone.

    Thinning out keys and values is chosen wherever something is: in every measurement so far it is nearer to the
    unreduced image than merging the tokens at the same speed.
    """
    minimum = MINIMUM_TOKENS.get(device_type, MINIMUM_TOKENS_ELSEWHERE)
    return "kv_downsample" if tokens >= minimum else None
