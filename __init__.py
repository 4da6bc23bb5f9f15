"""Paceline: inference acceleration for ComfyUI and diffusers that composes, can be undone, and says what it did.

This folder is two things. Put into ``custom_nodes``, it is a ComfyUI node pack. Installed with pip, it is the package
``paceline`` for Python programs with diffusers pipelines: ``from paceline import optimize``, see docs/python.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .optimizers.in_diffusers import (
        Attention,
        Compile,
        FuseQKV,
        Precision,
        QuantizeInt8,
        Report,
        ReuseSteps,
        TokenMerging,
        optimize,
        report,
        restore,
    )

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> Any:
    """Return the extension that lists our nodes; ComfyUI calls this once at start-up."""
    # Imported here, not above: a relative import at module level would stop test runners and linters, which
    # import this file without its package, and would run our code before ComfyUI asks for it.
    from .nodes import PacelineExtension

    return PacelineExtension()


def __getattr__(name: str) -> Any:
    """Import the Python API when somebody asks for a part of it: in ComfyUI nobody does."""
    if name in __all__:
        from .optimizers import in_diffusers as api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "WEB_DIRECTORY",
    "Attention",
    "Compile",
    "FuseQKV",
    "Precision",
    "QuantizeInt8",
    "Report",
    "ReuseSteps",
    "TokenMerging",
    "comfy_entrypoint",
    "optimize",
    "report",
    "restore",
]
