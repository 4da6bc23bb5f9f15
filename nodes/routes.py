"""What the frontend's settings page asks the server: how large the cache of compiled code is, and to clear it."""

from __future__ import annotations

import asyncio

from ..optimizers.compilation import ArtifactStore
from ..optimizers.hosts.comfyui.compilation.comfy_env import artifact_store
from ..optimizers.hosts.comfyui.reporting import Payload, running_server

PATH = "/paceline/cache"


def register_routes() -> None:
    """Answer at ``/paceline/cache``; does nothing without a server, or when it answers already."""
    server = running_server()
    if server is None or any(getattr(route, "path", None) == PATH for route in server.routes):
        return
    # Imported here: a script that samples without a server need not have it.
    from aiohttp import web

    async def size(_: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(cache_payload))

    async def clear(_: web.Request) -> web.Response:
        if server.prompt_queue.currently_running:
            return web.json_response(busy_payload(), status=409)
        await asyncio.to_thread(_clear)
        return web.json_response(await asyncio.to_thread(cache_payload))

    server.routes.get(PATH)(size)
    server.routes.delete(PATH)(clear)


def cache_payload() -> Payload:
    """Return how many bytes of compiled code are kept, and in which folder (None: nowhere)."""
    store = artifact_store()
    if store is None:
        return {"bytes": 0, "path": None}
    return {"bytes": sum(entry.size for entry in store.entries()), "path": str(store.root)}


def busy_payload() -> Payload:
    """Return why the cache cannot be cleared now."""
    return {"error": "A workflow is running. Clear the cache when it is done."}


def _clear() -> None:
    """Remove every compiled model. Nothing else is in the store, and its folder is not the user's to choose."""
    store = artifact_store()
    if store is not None:
        ArtifactStore(store.root, limit_bytes=0).trim()
