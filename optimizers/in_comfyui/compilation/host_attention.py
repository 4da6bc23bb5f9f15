"""ComfyUI's own attention as one operator of compiled code, where torch.compile cannot trace it.

Most of ComfyUI's attention functions look at free memory in each call, or use packages that torch cannot look into,
which would end a graph. As an operator, the very same function runs, and the graph goes on around it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..run.attention_chain import Attend, ChainedAttention, add_layer
from ..structure.protocols import Options

_OPERATORS = (
    "attention_sub_quad",
    "attention_split",
    "attention_xformers",
    "attention_flash",
    "attention_sage",
    "attention3_sage",
    "attention_comfy_kitchen_int8",
)
"""ComfyUI's functions that become operators. The others are plain torch, which the compiler can improve."""

BREAK_REMEDIES = {"get_free_memory": "start ComfyUI with --use-pytorch-cross-attention"}
"""For attention that is not reached here, of VAEs and of layers that hand over no options: by what breaks the graph."""

_NOT_USED = ("transformer_options", "_inside_attn_wrapper")
_DEFAULTS: dict[str, object] = {
    "mask": None,
    "attn_precision": None,
    "skip_reshape": False,
    "skip_output_reshape": False,
    "scale": None,
    "enable_gqa": False,
}


@torch.library.custom_op("paceline::host_attention", mutates_args=())
def _host_attention(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    mask: Tensor | None,
    attn_precision: torch.dtype | None,
    skip_reshape: bool,
    skip_output_reshape: bool,
    scale: float | None,
    enable_gqa: bool,
    full_precision: bool,
) -> Tensor:
    from comfy.ldm.modules import attention

    options: dict[str, object] = {} if scale is None else {"scale": scale}
    if enable_gqa:
        options["enable_gqa"] = True
    if full_precision:
        options["low_precision_attention"] = False
    shapes = {"skip_reshape": skip_reshape, "skip_output_reshape": skip_output_reshape}
    function: Callable[..., Tensor] = getattr(attention, name).__wrapped__
    return function(q, k, v, heads, mask=mask, attn_precision=attn_precision, **shapes, **options).contiguous()


@_host_attention.register_fake
def _(name: str, q: Tensor, k: Tensor, v: Tensor, heads: int, *options: object) -> Tensor:
    skip_reshape, skip_output_reshape = options[2:4]
    if skip_reshape:
        batch, tokens, width = q.shape[0], q.shape[2], v.shape[3]
    else:
        batch, tokens, width = q.shape[0], q.shape[1], q.shape[2] // heads
    return q.new_empty((batch, heads, tokens, width) if skip_output_reshape else (batch, tokens, heads * width))


def _as_operator(func: Attend, q: Tensor, k: Tensor, v: Tensor, heads: int, *args: object, **kwargs: object) -> Tensor:
    name = getattr(func, "__name__", "")
    if not torch.compiler.is_compiling() or name not in _OPERATORS:
        return func(q, k, v, heads, *args, **kwargs)
    named = {**dict(zip(_DEFAULTS, args, strict=False)), **kwargs}
    given = {key: value for key, value in named.items() if key not in _NOT_USED}
    full_precision = given.pop("low_precision_attention", True) is False
    options = {key: given.pop(key, default) for key, default in _DEFAULTS.items()}
    if given:  # something that a newer ComfyUI hands over: only its own function knows what it means
        return func(q, k, v, heads, *args, **kwargs)
    result: Tensor = torch.ops.paceline.host_attention(name, q, k, v, heads, *options.values(), full_precision)
    return result


def traceable() -> bool:
    """Return whether torch.compile traces the attention that ComfyUI has chosen for its networks."""
    from comfy.ldm.modules import attention

    chosen = (attention.optimized_attention, attention.optimized_attention_masked)
    return not any(function.__name__ in _OPERATORS for function in chosen)


def in_options(options: Options) -> None:
    """Let the attention of a model call be an operator, innermost of what is done to it."""
    if not traceable():
        add_layer(options, ChainedAttention(_as_operator), innermost=True)
