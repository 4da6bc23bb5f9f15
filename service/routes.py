"""The routes of the page: runs, what makes a workflow faster, the cache of compiled code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..optimizers.core.errors import PacelineError
from ..optimizers.in_comfyui.compilation.comfy_env import cache_folder
from ..optimizers.in_comfyui.run.reporting import Payload, running_server
from .apply_recipe import Nodes
from .before_run import BEFORE, before_payload
from .faster.job_store import FASTER, JOBS, faster_payload
from .outcomes import OUTCOMES, RUN, SAMPLINGS, Outcomes, run_payload

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/paceline/cache"


class Busy(PacelineError):
    """It cannot be done while a workflow runs."""


def register_routes(nodes: Nodes) -> None:
    """Answer at ``/paceline/...`` about our nodes; does nothing without a server, or when it answers already."""
    server = running_server()
    if server is None or any(getattr(route, "path", None) == PATH for route in server.routes):
        return
    # Imported here: a script that samples without a server need not have it.
    from aiohttp import web

    def answers(method: str, path: str, answer: Callable[[Any], Payload]) -> None:
        """Answer with what ``answer`` returns, in a thread, for what was posted, or for the query of the address."""

        async def respond(request: web.Request) -> web.Response:
            try:
                asked = await request.json() if method == "POST" else request.rel_url.query
            except (ValueError, RecursionError):
                return web.json_response(refusal_payload("This is no JSON."), status=400)
            try:
                return web.json_response(await asyncio.to_thread(answer, asked))
            except (PacelineError, RecursionError) as error:
                return web.json_response(refusal_payload(str(error)), status=409 if isinstance(error, Busy) else 400)

        server.routes.route(method, path)(respond)

    outcomes = Outcomes()
    answers("POST", OUTCOMES, partial(outcomes.ended, server=server))
    answers("GET", SAMPLINGS, lambda query: outcomes.samplings(query.get("prompt_id", ""), server))
    answers("GET", OUTCOMES, lambda _: outcomes.payload())
    answers("DELETE", OUTCOMES, lambda _: outcomes.clear())
    answers("POST", BEFORE, partial(before_payload, nodes=nodes))
    answers("POST", FASTER, partial(faster_payload, nodes=nodes))
    answers("GET", RUN, lambda query: run_payload(server, query.get("prompt_id", "")))
    answers("GET", PATH, lambda _: cache_payload())
    answers("DELETE", PATH, lambda _: clear_cache(server))
    server.add_on_prompt_handler(partial(JOBS.queued, server=server))


def cache_payload() -> Payload:
    """Return the bytes of compiled code that are kept, and in which folder (None: nowhere)."""
    folder = cache_folder()
    return {"bytes": 0, "path": None} if folder is None else {"bytes": folder.size(), "path": str(folder.path)}


def clear_cache(server: Any) -> Payload:
    """Delete the compiled code and return what is kept then; `Busy` while a workflow runs."""
    if server.prompt_queue.currently_running:
        raise Busy("A workflow is running. Clear the cache when it is done.")
    folder = cache_folder()  # only what was compiled is in it, and it is not the request's to choose
    if folder is not None:
        folder.clear()
    return cache_payload()


def refusal_payload(why: str) -> Payload:
    """Return the answer to a request that cannot be fulfilled."""
    return {"error": why}
