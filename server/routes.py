"""The routes of the page: runs, what makes a workflow faster, presets, the cache of compiled code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidSetting, PacelineError, require_text
from ..optimizers.hosts.comfyui.compilation.comfy_env import cache_folder
from ..optimizers.hosts.comfyui.paths import user_folder
from ..optimizers.hosts.comfyui.reporting import Payload, running_server
from ..workbench.recipe import Recipe, Step, require_preset_name, save_recipe
from .built_in_presets import BUILT_IN
from .faster.foreign import CONVERSIONS, conversions_payload, converted_inputs
from .faster.state import DESK, FASTER, faster_payload
from .outcomes import OUTCOMES, Outcomes
from .recipes import Nodes, check_steps
from .run_routes import RUN, run_payload

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/paceline/cache"
PRESETS_PATH = "/paceline/presets"


def register_routes(nodes: Nodes) -> None:
    """Answer at ``/paceline/...`` about our nodes; does nothing without a server, or when it answers already."""
    server = running_server()
    if server is None or any(getattr(route, "path", None) == PATH for route in server.routes):
        return
    # Imported here: a script that samples without a server need not have it.
    from aiohttp import web

    async def size(_: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(cache_payload))

    async def clear(_: web.Request) -> web.Response:
        if server.prompt_queue.currently_running:
            busy = "A workflow is running. Clear the cache when it is done."
            return web.json_response(refusal_payload(busy), status=409)
        folder = cache_folder()  # only what was compiled is in it, and it is not the request's to choose
        if folder is not None:
            await asyncio.to_thread(folder.clear)
        return web.json_response(await asyncio.to_thread(cache_payload))

    def answers(path: str, answer: Callable[[Any], Any]) -> None:
        async def post(request: web.Request) -> web.Response:
            try:
                sent = await request.json()
            except (ValueError, RecursionError):
                return web.json_response(refusal_payload("This is no JSON."), status=400)
            try:
                return web.json_response(await asyncio.to_thread(answer, sent))
            except (PacelineError, RecursionError) as error:
                return web.json_response(refusal_payload(str(error)), status=400)

        server.routes.post(path)(post)

    async def run(request: web.Request) -> web.Response:
        query = request.rel_url.query
        found = run_payload(server, query.get("workflow", ""), query.get("prompt_id", ""))
        return web.json_response({} if found is None else found)

    async def conversions(_: web.Request) -> web.Response:
        return web.json_response(conversions_payload())

    outcomes = Outcomes()

    async def kept(_: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(outcomes.payload))

    async def forget(_: web.Request) -> web.Response:
        await asyncio.to_thread(outcomes.clear)
        return web.json_response(await asyncio.to_thread(outcomes.payload))

    answers(OUTCOMES, partial(outcomes.ended, server=server))
    server.routes.get(OUTCOMES)(kept)
    server.routes.delete(OUTCOMES)(forget)
    answers(PRESETS_PATH, partial(save_preset, nodes=nodes))
    answers(FASTER, partial(faster_payload, nodes=nodes))
    answers(CONVERSIONS, partial(conversion_payload, nodes=nodes))
    server.add_on_prompt_handler(DESK.queued)
    server.routes.get(CONVERSIONS)(conversions)
    server.routes.get(RUN)(run)
    server.routes.get(PATH)(size)
    server.routes.delete(PATH)(clear)


def cache_payload() -> Payload:
    """Return the bytes of compiled code that are kept, and in which folder (None: nowhere)."""
    folder = cache_folder()
    return {"bytes": 0, "path": None} if folder is None else {"bytes": folder.size(), "path": str(folder.path)}


def conversion_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return our node's settings in the place of another; `InvalidSetting` if nothing of ours takes its place.

    ``sent`` is ``{"node": type of the other, "inputs": its values by name}``.
    """
    if not isinstance(sent, dict) or not isinstance(sent.get("inputs"), dict):
        raise InvalidSetting("This is no node.", "Send node and inputs.")
    return converted_inputs(str(sent.get("node")), sent["inputs"], nodes)


def save_preset(sent: Any, nodes: Nodes) -> Payload:
    """Save a preset of Optimize (Preset); `InvalidSetting` for a name or steps that cannot be.

    ``sent`` is ``{"name": ..., "steps": [{"node", "inputs"}], "description": ...}``.
    """
    if not isinstance(sent, dict) or not isinstance(sent.get("steps"), list):
        raise InvalidSetting("This is no preset.", "Send name, steps and description.")
    name = require_preset_name("name", str(sent.get("name", "")), BUILT_IN)
    try:
        steps = tuple(Step(str(step["node"]), dict(step["inputs"])) for step in sent["steps"])
    except (KeyError, TypeError, ValueError):
        raise InvalidSetting("A step of the preset cannot be read.", "Send node and inputs of each.") from None
    check_steps(steps, f"The preset {name!r}", nodes)
    description = require_text("description", str(sent.get("description", ""))[:500])
    save_recipe(Recipe(name, steps, description), user_folder("presets", f"{name}.json"))
    return {}


def refusal_payload(why: str) -> Payload:
    """Return the answer to a request that cannot be fulfilled."""
    return {"error": why}
