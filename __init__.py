"""Paceline: inference acceleration for ComfyUI that composes, can be undone, and says what it did."""

from typing import Any

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> Any:
    """Return the extension that lists our nodes; ComfyUI calls this once at start-up."""
    # Imported here, not above: a relative import at module level would stop test runners and linters, which
    # import this file without its package, and would run our code before ComfyUI asks for it.
    from .nodes import PacelineExtension

    return PacelineExtension()


__all__ = ["WEB_DIRECTORY", "comfy_entrypoint"]
