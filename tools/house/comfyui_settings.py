"""The nodes and inputs that are drawn in ComfyUI. An input that is not named here has the node's default."""

from __future__ import annotations

from typing import Any

Step = tuple[str, dict[str, Any]]
"""A node's id and inputs."""

Cases = dict[str, tuple[Step, ...]]


def _tokens(**inputs: Any) -> tuple[Step, ...]:
    return (("PacelineApplyToMe", inputs),)


def _compiled(**inputs: Any) -> tuple[Step, ...]:
    return (("PacelineCompileUNet", {"backend": "eager", "strict": True, **inputs}),)


def _int8(**inputs: Any) -> tuple[Step, ...]:
    return (("PacelineQuantizeInt8", inputs),)


TOKEN_REDUCTION: Cases = {
    "tokens preset quality": _tokens(preset="quality"),
    **{f"tokens {method}": _tokens(method=method, ratio=0.3) for method in ("auto", "merge", "kv_downsample")},
    **{f"tokens merge, max_downsample {n}": _tokens(method="merge", max_downsample=n) for n in ("1", "8")},
    "tokens merge around all": _tokens(method="merge", merge_crossattn=True, merge_mlp=True, max_downsample="2"),
    "tokens merge, cells 3 x 1": _tokens(method="merge", sx=3, sy=1),
}

KEPT: Cases = {
    "tokens preset quality": _tokens(preset="quality"),
    **{f"tokens {method}": _tokens(method=method, residual="auto") for method in ("merge", "kv_downsample")},
}
"""In so many steps that a difference is kept."""

COMPILE: Cases = {
    "compile eager in one piece": _compiled(fullgraph=True),
    "compile aot_eager": _compiled(backend="aot_eager"),
    "compile repeated blocks": _compiled(scope="repeated_blocks"),
    "compile any size": _compiled(dynamic="true", channels_last=True),
    "compile inductor": _compiled(backend="inductor"),
}

INT8: Cases = {
    **{f"int8 {preset}": _int8(preset=preset) for preset in ("quality", "balanced", "speed")},
    "int8 weight_only": _int8(mode="weight_only"),
}

PRECISION: Cases = {
    **{f"precision {dtype}": (("PacelineModelPrecision", {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")},
    "precision channels_last": (("PacelineModelPrecision", {"dtype": "fp32", "channels_last": True, "tf32": True}),),
}

_FUSE: Step = ("PacelineFuseQKV", {})
_ATTENTION: Step = ("PacelineSetAttentionProcessor", {"backend": "sdpa_math"})
_MERGE: Step = ("PacelineApplyToMe", {"method": "merge"})
_PRECISE: Step = ("PacelineModelPrecision", {"dtype": "fp32", "channels_last": True})
_ALL: tuple[Step, ...] = (_PRECISE, *_int8(include="attn"), _FUSE, _ATTENTION, _MERGE)

STACKS: Cases = {
    "stack": (*_ALL, *_compiled()),
    "stack, other order": (*_compiled(), *reversed(_ALL)),
    "stack without compile": _ALL,
}

TRANSFORMERS: Cases = {
    "fuse": (_FUSE,),
    "int8 all": _int8(include="."),
    "precision bf16": (("PacelineModelPrecision", {"dtype": "bf16"}),),
    "compile repeated blocks": _compiled(scope="repeated_blocks"),
    "stack": (_FUSE, *_int8(include="."), _ATTENTION, *_compiled()),
}

_COMPILED_VAE: Step = ("PacelineCompileVAE", {"backend": "eager", "strict": True, "channels_last": True})

VAE: Cases = {
    "compile": (_COMPILED_VAE,),
    **{f"precision {dtype}": (("PacelineVAEPrecision", {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")},
    "stack": (("PacelineVAEPrecision", {"dtype": "bf16"}), _COMPILED_VAE),
}
