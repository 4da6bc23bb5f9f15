"""What the frontend's settings page asks the server: how large the cache of compiled code is, and to clear it."""

from __future__ import annotations

import asyncio
from typing import Any

from ...compilation import ArtifactStore
from .compilation.surroundings import artifact_store
from .reporting import running_server

PATH = "/paceline/cache"


def register_routes() -> None:
    """Answer at ``/paceline/cache``; does nothing without a server, or when it answers already."""
    server = running_server()
    if server is None or any(getattr(route, "path", None) == PATH for route in server.routes):
        return
    # Imported here: a script that samples without a server need not have it.
    from aiohttp import web

    async def size(_: Any) -> Any:
        return web.json_response(await asyncio.to_thread(_describe))

    async def clear(_: Any) -> Any:
        if server.prompt_queue.currently_running:
            return web.json_response({"error": "A workflow is running. Clear the cache when it is done."}, status=409)
        await asyncio.to_thread(_clear)
        return web.json_response(await asyncio.to_thread(_describe))

    server.routes.get(PATH)(size)
    server.routes.delete(PATH)(clear)


def _describe() -> dict[str, int]:
    """Return the bytes and the number of compiled models that are kept."""
    store = artifact_store()
    entries = [] if store is None else store.entries()
    return {"bytes": sum(entry.size for entry in entries), "entries": len(entries)}


def _clear() -> None:
    """Remove every compiled model. Nothing else is in the store, and its folder is not the user's to choose."""
    store = artifact_store()
    if store is not None:
        ArtifactStore(store.root, limit_bytes=0).trim()
