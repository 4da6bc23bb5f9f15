"""This repository as a ComfyUI node pack, loaded the way ComfyUI loads one."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from .paths import ROOT


def load_pack(folder: Path = ROOT) -> ModuleType:
    """Import the pack in ``folder`` as package ``paceline`` and return it; later calls return the same module.

    The repository's root is not put on ``sys.path``: ComfyUI owns the top-level name ``nodes``. Afterwards
    ``import paceline.optimizers.token_merging`` works everywhere in this process.
    """
    name, file = "paceline", folder / "__init__.py"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_nodes() -> dict[str, Any]:
    """Run the pack's ``comfy_entrypoint`` and return its nodes by id. Needs ``in_process.bootstrap()`` first."""
    module = load_pack()

    async def collect() -> dict[str, Any]:
        extension = await module.comfy_entrypoint()
        await extension.on_load()
        return {node.GET_SCHEMA().node_id: node for node in await extension.get_node_list()}

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(collect())
    # Called from inside an event loop (an async test): run in a loop of its own.
    result: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: result.update(asyncio.run(collect())))
    thread.start()
    thread.join()
    return result
