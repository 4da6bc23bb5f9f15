"""ComfyUI's own attention as one operator of compiled code, where torch.compile cannot trace it.

Most of ComfyUI's attention functions look at free memory in each call, or use packages that torch cannot look into,
which would end a graph. As an operator, the very same function runs, and the graph goes on around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from types import FunctionType, MethodType
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import Module

from ...core.shadow import Shadows
from ..run.attention_chain import Attend, ChainedAttention, add_layer
from ..run.other_names import names_in, with_names
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

_FUNCTION = "optimized_attention"
"""The name by which ComfyUI's layers call the attention that it has chosen."""

_VAE_MODULE = "comfy.ldm.modules.diffusionmodules.model"
_VAE_OPERATORS = ("normal_attention", "xformers_attention")

BREAK_REMEDIES = {"get_free_memory": "start ComfyUI with --use-pytorch-cross-attention"}
"""For networks whose attention is not reached here, by what breaks their graphs."""

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


@torch.library.custom_op("paceline::host_vae_attention", mutates_args=())
def _host_vae_attention(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from comfy.ldm.modules.diffusionmodules import model

    function: Callable[..., Tensor] = getattr(model, name)
    return function(q, k, v).contiguous()


@_host_vae_attention.register_fake
def _(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.new_empty(q.shape)


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


_layers: WeakKeyDictionary[Module, tuple[ref[Module], ...]] = WeakKeyDictionary()


def _with_attention(network: Module) -> Iterator[Module]:
    """Yield the layers of a network that call ComfyUI's attention by its name; looked for once in its life."""
    if network not in _layers:
        modules = [
            (module, [vars(kind).get("forward") for kind in type(module).__mro__]) for module in network.modules()
        ]
        _layers[network] = tuple(
            ref(module)
            for module, forwards in modules
            if _FUNCTION in vars(module) or any(_FUNCTION in names_in(forward) for forward in forwards)
        )
    for kept in _layers[network]:
        module = kept()
        if module is not None:
            yield module


def in_options(options: Options) -> None:
    """Let the attention of a model call be an operator, innermost of what is done to it."""
    if not traceable():
        add_layer(options, ChainedAttention(_as_operator), innermost=True)


def in_layers(network: Module, shadows: Shadows) -> None:
    """Let the attention of layers that hand over no options be an operator, until ``shadows`` are undone."""
    from comfy.ldm.modules import attention

    chosen = attention.optimized_attention
    if traceable():
        return
    for module in _with_attention(network):
        forward = type(module).forward
        if _FUNCTION in names_in(forward) and forward.__globals__.get(_FUNCTION) is chosen:
            shadows.put(module, "forward", MethodType(_calling_operator(forward, chosen), module))


@cache
def _calling_operator(forward: FunctionType, chosen: Attend) -> FunctionType:
    """Return a copy of ``forward`` to which ComfyUI's attention is the operator.

    The operator gets the function inside of ComfyUI's wrapper, as overrides do: torch 2.15 reads another name of a
    wrapper than Python does.
    """
    operator = partial(_as_operator, chosen.__wrapped__)  # type: ignore[attr-defined]
    return with_names(forward, {name: operator for name, value in forward.__globals__.items() if value is chosen})


def in_modules(network: Module, shadows: Shadows) -> None:
    """Let the attention inside of a VAE's or ControlNet's network be operators, until ``shadows`` are undone."""
    in_layers(network, shadows)
    for module in _with_attention(network):
        chosen = vars(module).get(_FUNCTION)
        name = getattr(chosen, "__name__", "")
        if name in _VAE_OPERATORS and getattr(chosen, "__module__", "") == _VAE_MODULE:
            shadows.put(module, _FUNCTION, _vae_function(name))


@cache
def _vae_function(name: str) -> Callable[..., Tensor]:
    """Return the operator of a VAE's attention function; one object for life, as compiled graphs are guarded on it."""
    return partial(torch.ops.paceline.host_vae_attention, name)
