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
    "tokens defaults": _tokens(),
    **{f"tokens preset {name}": _tokens(preset=name) for name in ("quality", "balanced", "fast")},
    **{
        f"tokens {method} {ratio}": _tokens(method=method, ratio=ratio)
        for method in ("auto", "merge", "kv_downsample")
        for ratio in (0.3, 0.75)
    },
    **{f"tokens merge, max_downsample {n}": _tokens(method="merge", max_downsample=n) for n in ("1", "2", "8")},
    "tokens merge around all": _tokens(method="merge", merge_crossattn=True, merge_mlp=True, max_downsample="2"),
    "tokens merge around feed-forward": _tokens(method="merge", merge_attn=False, merge_mlp=True),
    "tokens merge, not random": _tokens(method="merge", use_rand=False),
    "tokens merge, seed 5, cells 3 x 1": _tokens(method="merge", seed=5, sx=3, sy=1),
    "tokens merge, first half": _tokens(method="merge", end_percent=0.5),
    "tokens kv, second half": _tokens(method="kv_downsample", start_percent=0.5),
    "tokens merge, decay": _tokens(method="merge", level_decay=0.5, max_downsample="8"),
    "tokens ratio 0": _tokens(ratio=0.0),
}

COMPILE: Cases = {
    "compile eager": _compiled(),
    "compile eager in one piece": _compiled(fullgraph=True),
    "compile aot_eager": _compiled(backend="aot_eager"),
    "compile repeated blocks": _compiled(scope="repeated_blocks"),
    "compile channels_last": _compiled(channels_last=True),
    "compile any size": _compiled(dynamic="true"),
    "compile inductor": _compiled(backend="inductor"),
}

INT8: Cases = {
    "int8 balanced": _int8(),
    "int8 quality": _int8(preset="quality"),
    "int8 speed": _int8(preset="speed"),
    "int8 without cross-attention": _int8(exclude="attn2"),
    "int8 all attention": _int8(include="attn"),
    "int8 weight_only": _int8(mode="weight_only"),
}

PRECISION: Cases = {
    **{f"precision {dtype}": (("PacelineModelPrecision", {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")},
    "precision channels_last": (("PacelineModelPrecision", {"dtype": "fp32", "channels_last": True}),),
    "precision tf32": (("PacelineModelPrecision", {"dtype": "fp32", "tf32": True}),),
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
    "stack in bf16": (
        ("PacelineModelPrecision", {"dtype": "bf16"}),
        *_int8(mode="weight_only"),
        _FUSE,
        _ATTENTION,
        *_tokens(preset="balanced"),
        *_compiled(backend="aot_eager"),
    ),
}

_ANY: Cases = {
    "attention sdpa_math": (_ATTENTION,),
    "fuse": (_FUSE,),
    "int8 speed": _int8(preset="speed"),
    "int8 all": _int8(include="."),
    "int8 weight_only": _int8(mode="weight_only"),
    "precision bf16": (("PacelineModelPrecision", {"dtype": "bf16"}),),
    "compile eager": _compiled(),
    "compile repeated blocks": _compiled(scope="repeated_blocks"),
}
_TOGETHER: tuple[Step, ...] = (*_int8(include="."), _ATTENTION)

TRANSFORMERS: Cases = {
    **_ANY,
    "stack": (*_TOGETHER, *_compiled()),
    "stack with fuse": (_FUSE, *_TOGETHER),
}

_COMPILED_VAE: Step = ("PacelineCompileVAE", {"backend": "eager", "strict": True})

VAE: Cases = {
    "compile": (_COMPILED_VAE,),
    "compile channels_last": (("PacelineCompileVAE", {**_COMPILED_VAE[1], "channels_last": True}),),
    **{f"precision {dtype}": (("PacelineVAEPrecision", {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")},
    "precision channels_last": (("PacelineVAEPrecision", {"dtype": "fp32", "channels_last": True}),),
    "stack": (("PacelineVAEPrecision", {"dtype": "bf16"}), _COMPILED_VAE),
}

CONTROLNET: dict[str, dict[str, Any]] = {
    "compile": {"backend": "eager", "strict": True},
    "compile aot_eager": {"backend": "aot_eager", "strict": True},
    "compile channels_last": {"backend": "eager", "channels_last": True, "strict": True},
}
