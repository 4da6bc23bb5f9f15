"""Our nodes that change a MODEL, by short names, with settings that do something to a small UNet on a processor."""

from __future__ import annotations

from typing import Any

KEYS = {"preset": "custom", "method": "kv_downsample", "ratio": 0.75, "max_downsample": "auto"}
EVERYWHERE = {"merge_attn": True, "merge_crossattn": True, "merge_mlp": True}
ON: dict[str, tuple[str, dict[str, Any]]] = {
    "merge": ("ApplyToMe", {**KEYS, "method": "merge", "ratio": 0.5, **EVERYWHERE}),
    "kv_downsample": ("ApplyToMe", {**KEYS, "residual": "off"}),
    "residual": ("ApplyToMe", {**KEYS, "residual": "auto"}),
    "attention": ("SetAttentionProcessor", {"backend": "vanilla"}),
    "fuse": ("FuseQKV", {}),
    "int8": ("QuantizeInt8", {"include": "attn, ff"}),
    "weight_only": ("QuantizeInt8", {"include": "attn, ff", "mode": "weight_only"}),
    "precision": ("ModelPrecision", {"dtype": "bf16"}),
    "channels_last": ("ModelPrecision", {"dtype": "fp32", "channels_last": True}),
    "compile": ("CompileUNet", {"backend": "eager", "strict": True}),
    "reuse": ("ReuseSteps", {"budget": 1.0}),
}


def put(studio: Any, name: str, model: Any) -> Any:
    """Return a MODEL with one of them on it."""
    node, settings = ON[name]
    return studio.run(f"Paceline{node}", model=model, **settings)


def technique(model: Any, kind: str = "") -> Any:
    """Return a technique that is on a MODEL; without a name the only one."""
    stack = model.get_attachment("paceline")
    if kind:
        return stack.find(kind)
    (found,) = stack.techniques
    return found


def said(model: Any, kind: str = "") -> Any:
    """Return what it says of the last run."""
    return technique(model, kind).last_summary()
