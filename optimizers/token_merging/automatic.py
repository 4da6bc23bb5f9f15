"""What ``auto`` means: the method for a number of tokens on a device, from measurements."""

from __future__ import annotations

# CPU: thinning out keys and values shortens a self-attention even at 64 tokens
# (benchmarks/results/break_even_cpu.json), but levels that coarse are under one per cent of a step and hold the meaning
# of the picture. Elsewhere: not measured yet; published measurements of ToDo against FlashAttention begin to gain at
# 4096 tokens. `python benchmarks/break_even.py` on a GPU prints the number that belongs here.
MINIMUM_TOKENS = {"cpu": 256}
MINIMUM_TOKENS_ELSEWHERE = 4096


def choose_method(tokens: int, device_type: str) -> str | None:
    """Return the method for a block with this many image tokens, or None if it is better left alone.

    On CPUs the limit is measured. On GPUs it is not yet: it stands on published numbers, on the careful side.

    Leaving out keys and values is chosen wherever something is: on both trained models that we measure on, it stays
    nearer to the unreduced picture than merging tokens does at the same amount of work
    (benchmarks/results/token_reduction_quality.png).
    """
    minimum = MINIMUM_TOKENS.get(device_type, MINIMUM_TOKENS_ELSEWHERE)
    return "kv_downsample" if tokens >= minimum else None
