"""Nodes of ComfyUI and of other packs that do what one of ours does, and the settings of ours in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidSetting
from ...optimizers.hosts.comfyui.reporting import Payload
from ..recipes import Nodes, refusal

CONVERSIONS = "/paceline/conversions"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Conversion:
    """Our node ``to`` in the place of another.

    Attributes:
        widgets: of the old node, in the order of its saved values: a pack that is not installed has no others.
        values: from the old node's values to ours; None keeps the default.
        input: what the node changes, by its name at the old node; ``our_input`` at ours, also our first output.
    """

    to: str
    widgets: tuple[str, ...]
    values: Callable[[Values], dict[str, Any]]
    input: str = "model"
    our_input: str = "model"


def _compile(old: Values) -> dict[str, Any]:
    # Our "backend" is what generates code. The backend "cudagraphs" of others generates none; the mode that records
    # CUDA graphs is nearest to it.
    recorded = "reduce-overhead" if old.get("backend") == "cudagraphs" else None
    dynamic = old.get("dynamic")
    return {
        "mode": recorded or old.get("mode"),
        "fullgraph": old.get("fullgraph"),
        "dynamic": None if dynamic in (None, "auto") else str(dynamic).lower(),
        "compile_encoder": old.get("compile_encoder"),
        "compile_decoder": old.get("compile_decoder"),
    }


def _todo(old: Values) -> dict[str, Any]:
    first, second = (float(old.get(f"downsample_factor_depth_{depth}", 3 - depth)) for depth in (1, 2))
    ratio = 1 - 1 / max(first, 1.0) ** 2
    most = "2" if second > 1 else "1"
    return {"preset": "custom", "method": "kv_downsample", "ratio": ratio, "max_downsample": most}


def _compile_unet(*widgets: str) -> Conversion:
    return Conversion("PacelineCompileUNet", widgets, _compile)


def _reuse(*widgets: str) -> Conversion:
    # Their thresholds measure something else than our budget, which stays at its default.
    return Conversion("PacelineReuseSteps", widgets, lambda old: {})


_KJ = ("backend", "fullgraph", "mode")

KNOWN: dict[str, Conversion] = {
    # ComfyUI
    "TomePatchModel": Conversion(
        "PacelineApplyToMe", ("ratio",), lambda old: {"preset": "custom", "method": "merge", "ratio": old.get("ratio")}
    ),
    "TorchCompileModel": _compile_unet("backend"),
    "EasyCache": _reuse("reuse_threshold", "start_percent", "end_percent", "verbose"),
    "LazyCache": _reuse("reuse_threshold", "start_percent", "end_percent", "verbose"),
    # ethansmith2000/comfy-todo
    "ToDoPatchModel": Conversion(
        "PacelineApplyToMe", ("downsample_factor_depth_1", "downsample_factor_depth_2"), _todo
    ),
    # cubiq/ComfyUI_essentials
    "ModelCompile+": _compile_unet("fullgraph", "dynamic", "mode"),
    # kijai/ComfyUI-KJNodes
    "TorchCompileModelAdvanced": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileModelFluxAdvanced": _compile_unet(*_KJ, "double_blocks", "single_blocks", "dynamic"),
    "TorchCompileModelFluxAdvancedV2": _compile_unet(*_KJ, "double_blocks", "single_blocks", "dynamic"),
    "TorchCompileModelWanVideo": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileModelWanVideoV2": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileModelQwenImage": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileModelHyVideo": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileLTXModel": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileCosmosModel": _compile_unet(*_KJ, "dynamic"),
    "TorchCompileVAE": Conversion(
        "PacelineCompileVAE", (*_KJ, "compile_encoder", "compile_decoder"), _compile, "vae", "vae"
    ),
    "TorchCompileControlNet": Conversion("PacelineCompileControlNet", _KJ, _compile, "controlnet", "control_net"),
    "PathchSageAttentionKJ": Conversion(
        "PacelineSetAttentionProcessor",
        ("sage_attention",),
        lambda old: {"backend": "auto" if old.get("sage_attention") == "disabled" else "sage"},
    ),
    "PatchFlashAttentionKJ": Conversion("PacelineSetAttentionProcessor", (), lambda old: {"backend": "flash"}),
    "WanVideoTeaCacheKJ": _reuse("rel_l1_thresh", "start_percent", "end_percent", "cache_device", "coefficients"),
}
"""By the old node's type."""


def conversions_payload() -> Payload:
    """Return what the page must know to offer conversions, by the old node's type."""
    return {
        name: {"to": known.to, "input": known.input, "our_input": known.our_input, "widgets": list(known.widgets)}
        for name, known in KNOWN.items()
    }


def converted_inputs(node: str, old: Values, nodes: Nodes) -> Payload:
    """Return our node's settings from those of ``old``; `InvalidSetting` if nothing of ours does what it does.

    Values that ours does not have or does not allow are left out.
    """
    if node not in KNOWN:
        raise InvalidSetting(f"No Paceline node takes the place of {node!r}.", f"These are known: {', '.join(KNOWN)}.")
    conversion = KNOWN[node]
    inputs = {entry.id: entry for entry in nodes[conversion.to].define_schema().inputs}
    try:
        found = conversion.values(old)
    except (TypeError, ValueError, OverflowError):  # values that the old node would not take either
        found = {}
    values = {name: value for name, value in found.items() if value is not None and name in inputs}
    return {name: value for name, value in values.items() if not refusal(inputs[name], value)}
