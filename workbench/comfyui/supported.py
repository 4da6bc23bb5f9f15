"""Which ComfyUI this pack needs, told by what it has; version numbers are compared for one warning only."""

from __future__ import annotations

from functools import reduce
from importlib import import_module, metadata

from ...core.errors import HostTooOld
from .machine import host_version

MINIMUM_VERSION, NEWEST_TESTED = "0.27", "0.33.0"

_REQUIRED = (
    "comfy.patcher_extension:WrappersMP.APPLY_MODEL",
    "comfy.patcher_extension:CallbacksMP.ON_PRE_RUN",
    "comfy.patcher_extension:CallbacksMP.ON_CLEANUP",
    "comfy.model_patcher:ModelPatcher.set_attachments",
    "comfy.model_patcher:ModelPatcher.remove_wrappers_with_key",
    "comfy.ldm.modules.attention:wrap_attn",
    "comfy.ops:scaled_dot_product_attention",
    "comfy.quant_ops:TensorWiseINT8Layout",
)
"""Without these there are no nodes at all. The last one came with 0.27, whose life cycle of models (dynamic VRAM,
clones) is the oldest that this pack was run against."""


def missing(touch: str) -> str:
    """Return why ``module:attribute.attribute`` is not there; empty if it is."""
    module, _, path = touch.partition(":")
    try:
        reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        return f"{touch} is missing ({error})"
    return ""


def require_host() -> None:
    """Raise `HostTooOld`, naming what is missing, why, and what helps, if this ComfyUI lacks what all nodes need."""
    faults = ((touch, missing(touch)) for touch in _REQUIRED)
    touch, fault = next(((touch, fault) for touch, fault in faults if fault), ("", ""))
    if not fault:
        return
    version = host_version()
    if "comfy_kitchen" in fault:
        why = f" It needs another comfy-kitchen than {_installed('comfy-kitchen')}: {fault}."
        remedy = "Install what ComfyUI's requirements.txt names, and restart it."
    elif _numbers(version) < _numbers(MINIMUM_VERSION):
        why = ""
        remedy = f"Paceline needs ComfyUI {MINIMUM_VERSION} or newer: update ComfyUI and restart it."
    else:
        why = f" Paceline was tested with {MINIMUM_VERSION} to {NEWEST_TESTED}."
        remedy = "Update Paceline, and start ComfyUI again."
    raise HostTooOld(f"This ComfyUI ({version}) has no {touch.replace(':', '.')}.{why}", remedy)


def _installed(package: str) -> str:
    try:
        return f"the installed {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return "the one that is there"


def untested() -> str | None:
    """Return a line that names this ComfyUI's version if it is newer than the newest tested one; else None."""
    version = host_version()
    if _numbers(version) <= _numbers(NEWEST_TESTED):
        return None
    return f"ComfyUI {version} is newer than {NEWEST_TESTED}, the newest that this version of Paceline was tested with."


def _numbers(version: str) -> tuple[int, ...]:
    """Return e.g. ``(0, 38, 1)``; nothing for a version without numbers, which is older than all."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
