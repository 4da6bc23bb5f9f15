"""A node for tests only: attention that takes long, so that what shortens it is faster for certain.

ComfyUI loads this folder as a node pack beside ours. Nothing here knows anything of our pack.
"""

from __future__ import annotations

import time
from typing import Any


class SlowAttention:
    """Make each call of attention last longer, in proportion to its keys."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "slow"
    CATEGORY = "tests"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"model": ("MODEL",), "ms_per_key": ("FLOAT", {"default": 0.4, "step": 0.1})}}

    def slow(self, model: Any, ms_per_key: float) -> tuple[Any]:
        def attend(attention: Any, q: Any, k: Any, v: Any, *more: Any, **named: Any) -> Any:
            time.sleep(k.shape[1] * ms_per_key / 1000)
            return attention(q, k, v, *more, **named)

        made = model.clone()
        made.model_options["transformer_options"]["optimized_attention_override"] = attend
        return (made,)


NODE_CLASS_MAPPINGS = {"SlowAttention": SlowAttention}
