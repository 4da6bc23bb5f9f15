"""Run a MODEL's attention with a chosen backend, through ComfyUI's ``optimized_attention_override``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel
from ....core.order import ATTENTION
from ...attention import AttentionCall, choose, get, require
from ...families import find_family
from .attention_chain import add_layer
from .model import describe_model, inference_dtype, require_model
from .stack import KEY, ModelCall, Technique
from .unet import attention_blocks, is_unet

NOT_REACHED = "VAE, text encoders and ControlNets choose their own attention"


class AttentionProcessor(Technique[ModelCall]):
    """Set Attention Processor on one MODEL.

    Args:
        patcher: the MODEL, read for its device, dtype and head sizes only.
        name: a backend's name, or ``auto``.
        node_id: the node to report to.

    Raises:
        InvalidSetting: if there is no backend of that name.
        BackendUnavailable: if the backend cannot run here, or takes none of this model's head sizes.
        UnsupportedModel: if nothing in this family can be reached.
    """

    kind = ATTENTION
    title = "Set Attention Processor"

    def __init__(self, patcher: Any, name: str, node_id: str | None = None) -> None:
        super().__init__(node_id)
        require_model(patcher)
        network = patcher.model.diffusion_model
        family = find_family(network)
        if family is not None and not family.override_hook:
            raise UnsupportedModel(
                f"{describe_model(patcher)} does not pass its attention through ComfyUI's override hook, so no node "
                "can choose its attention backend.",
                "Remove the node for this model, or choose attention for all models with ComfyUI's start options "
                "(--use-pytorch-cross-attention, --use-flash-attention, --use-sage-attention).",
            )
        device, dtype = torch.device(patcher.load_device), inference_dtype(patcher)
        head_dims = sorted({block.head_dim for block in attention_blocks(patcher)}) if is_unet(patcher) else [64, 128]
        self.reason = ""
        if name == "auto":
            name, self.reason = choose(device, dtype, head_dims)
        self.backend = get(name)
        # Any head size that the limits allow will do for the probe; if there is none, it says so.
        fitting = [size for size in head_dims if self.backend.refusal(_smallest_call(device, dtype, size)) is None]
        self.function = require(name, device, dtype, (fitting or head_dims)[0])
        if name == "sdpa":
            self.function = _host_sdpa
        self._broken: dict[tuple[object, ...], str] = {}
        self._layer: Callable[..., Any] = self._attend  # one object for life: compiled graphs are guarded on it

    def describe(self) -> str:
        """Return the backend, why it was chosen, and what it does not reach."""
        chosen = f"auto: {self.backend.name} ({self.reason})" if self.reason else self.backend.name
        return f"{chosen}; {NOT_REACHED}"

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Become the innermost layer of this call's attention."""
        add_layer(call.transformer_options, self._layer, activity.fall_back)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``sdpa in 640 attention calls; 0 fallbacks``."""
        details = activity.fallback_lines()
        count = activity.fallback_count
        if not activity.use_count:
            why = "every call fell back" if count else "no attention call of this model reached ComfyUI's hook"
            return Summary("inactive", f"{self.backend.name} not active: {why}", details=details)
        text = f"{self.backend.name} in {activity.use_count} attention calls; {count} fallbacks"
        return Summary("partly" if count else "active", text, details=details)

    def _attend(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """ComfyUI's override: ``func`` is its own backend, the rest the arguments of ``optimized_attention``."""
        activity = kwargs["transformer_options"][KEY].activities[self.kind]
        q, k, v, mask, heads_first_out = _to_heads(*args, **kwargs)
        description = AttentionCall.of(q, k, v, mask)
        reason = self.backend.refusal(description)
        if reason is None and not self.backend.exact and kwargs.get("low_precision_attention", True) is False:
            reason = "the model asks for full precision here"
        signature = (description.head_dim, description.dtype, description.has_mask)
        reason = reason or self._broken.get(signature)
        if reason is not None:
            activity.fall_back(reason)
            return func(*args, **kwargs)
        try:
            output = self.function(
                q, k, v, mask=mask, scale=kwargs.get("scale"), enable_gqa=bool(kwargs.get("enable_gqa", False))
            )
        except torch.OutOfMemoryError:
            raise  # ComfyUI frees memory and tries again: that is not for us to hide
        except (RuntimeError, ValueError, NotImplementedError) as error:
            # A limit that we do not know of. Remember it, so that it is tried once and not at every call.
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            self._broken[signature] = reason
            activity.fall_back(reason)
            return func(*args, **kwargs)
        activity.use("self-attention" if description.query_tokens == description.key_tokens else "cross-attention")
        if heads_first_out:
            return output
        batch, heads, tokens, width = output.shape
        return output.transpose(1, 2).reshape(batch, tokens, heads * width)  # [B, H, N, D] -> [B, N, H*D]


def _host_sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Call torch's SDPA with ComfyUI's own order of kernels, so that the bits agree with it."""
    import comfy.ops

    options: Any = {} if scale is None else {"scale": scale}
    if enable_gqa:
        options["enable_gqa"] = True
    output: torch.Tensor = comfy.ops.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=False, **options
    )
    return output


def _smallest_call(device: torch.device, dtype: torch.dtype, head_dim: int) -> AttentionCall:
    return AttentionCall(device.type, dtype, head_dim, query_tokens=64, key_tokens=64)


def _to_heads(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
    attn_precision: torch.dtype | None = None,
    skip_reshape: bool = False,
    skip_output_reshape: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, bool]:
    """Bring the arguments of ``optimized_attention`` to ``[batch, heads, tokens, head_dim]``, the mask to 4 axes.

    ``attn_precision`` is not needed: every backend sums its scores in float32.
    """
    if not skip_reshape:  # [B, N, H*D] -> [B, H, N, D]; with grouped queries, k and v have fewer heads of the same size
        width = q.shape[-1] // heads
        q, k, v = (x.reshape(x.shape[0], x.shape[1], -1, width).transpose(1, 2) for x in (q, k, v))
    if mask is not None:
        if mask.ndim == 2:
            mask = mask.unsqueeze(0)
        if mask.ndim == 3:
            mask = mask.unsqueeze(1)
    return q, k, v, mask, skip_output_reshape
