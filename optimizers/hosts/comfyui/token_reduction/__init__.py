"""Token reduction in ComfyUI: which models can have it, and the hooks that put it there."""

from .choose import OTHER_NETWORKS, token_reduction_for
from .joint import JointTokenReduction

OTHER_NETWORKS.append(JointTokenReduction.for_model)

__all__ = ["token_reduction_for"]
