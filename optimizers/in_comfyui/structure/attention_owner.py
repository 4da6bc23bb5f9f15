"""Who else has chosen how attention is computed: another node, a start option of ComfyUI, or the checkpoint."""

from __future__ import annotations

import inspect
import re
from functools import partial

from torch.nn import Module

SLOT = "optimized_attention_override"
"""Transformer option with the function that ComfyUI calls in the place of its own attention."""

UNKNOWN = "an attention override of another node"
SPARSE = "ComfyUI's sparse attention"
_COMFYUI_NODE = "ComfyUI's Model Attention Backend"
_BACKENDS = {"attention_comfy_kitchen_int8": "comfy kitchen attention", "attention_pytorch": "pytorch attention"}
"""How ComfyUI's node calls its functions."""

_PACK = re.compile(r"custom_nodes[/\\.]([^/\\.]+)")

_OPTIONS = {
    "use_ck_attention": "attention_comfy_kitchen_int8",
    "use_sage_attention": "attention_sage",
    "use_flash_attention": "attention_flash",
    "use_split_cross_attention": "attention_split",
    "use_quad_cross_attention": "attention_sub_quad",
}
"""ComfyUI's start options for attention and what they choose, but for the one that asks for torch's SDPA."""


def owner_of(override: object) -> str:
    """Return whose an attention override is, for a sentence, e.g. ``the attention override of ComfyUI-KJNodes``."""
    if isinstance(override, partial):
        return owner_of(override.func)
    module, name = _home(override)
    if "sparse" in f"{module}.{name}".lower():
        return SPARSE
    if "set_model_optimized_attention" in name:
        inner = inspect.getclosurevars(override).nonlocals.get("optimized_attention")  # type: ignore[arg-type]
        if _PACK.search(_home(inner)[0]) is None:
            function = getattr(inner, "__name__", "")
            return f"{_COMFYUI_NODE} ({_BACKENDS.get(function, function)})"
        return owner_of(inner)
    if pack := pack_of(override):
        return f"the attention override of {pack}"
    if module.partition(".")[0] in ("comfy", "comfy_extras"):
        return f"ComfyUI's {module}"
    return UNKNOWN


def pack_of(thing: object) -> str:
    """Return the folder of the other pack that has made a function or object; "" for ComfyUI's, torch's and ours."""
    while isinstance(thing, partial):
        thing = thing.func
    module = _home(thing)[0]
    ours = f"{module}.".startswith(f"{__name__.partition('.optimizers.')[0]}.")
    pack = None if ours else _PACK.search(module)
    return "" if pack is None else pack[1].replace("_x_", ".")  # as ComfyUI writes the dot of a folder's name


def _home(function: object) -> tuple[str, str]:
    """Return the module and the qualified name of a function, or of the class of a callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return str(getattr(named, "__module__", "")), str(getattr(named, "__qualname__", ""))


def start_option() -> str:
    """Return the option that ComfyUI was started with to choose its attention, or "" where none took effect."""
    from comfy.cli_args import args
    from comfy.ldm.modules import attention

    function = getattr(attention.optimized_attention, "__name__", "")
    chosen = (name for name, chooses in _OPTIONS.items() if chooses == function)
    given = next((name for name in chosen if getattr(args, name, False)), "")
    return f"--{given.replace('_', '-')}" if given else ""


def layers_with_a_preference(network: Module) -> int:
    """Return how many layers have an attention of their own that the checkpoint asks for (ComfyUI 0.34 and newer).

    None has for which this machine has no kernel. ComfyUI asks overrides first, so an override of ours takes the place
    of a layer's own attention.
    """
    own = (getattr(module, "comfy_attention", None) for module in network.modules())
    return sum(getattr(attention, "function", None) is not None for attention in own)
