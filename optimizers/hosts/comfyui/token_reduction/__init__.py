"""Token reduction in ComfyUI: which models and blocks can have it, and the hooks that put it there."""

from .choose import token_reduction_for

__all__ = ["token_reduction_for"]
