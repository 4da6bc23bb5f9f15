"""Prompts run by ComfyUI's own executor in this process, with objects of a test in them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from comfy_host import pack


def node(kind: str, /, **inputs: Any) -> dict[str, Any]:
    """Return a node of a prompt."""
    return {"class_type": kind, "inputs": inputs}


def _giver(type: str) -> type:
    class Giver:
        RETURN_TYPES, FUNCTION, CATEGORY = (type,), "give", ""
        objects: dict[str, Any] = {}

        @classmethod
        def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
            return {"required": {"name": ("STRING", {})}}

        def give(self, name: str) -> tuple[Any]:
            return (self.objects[name],)

    return Giver


class Executor:
    """A ComfyUI that runs prompts; ``give`` makes a node of an object."""

    def __init__(self) -> None:
        import execution

        import nodes

        asyncio.run(nodes.init_builtin_extra_nodes())
        self._seen: list[Any] = []
        self._types = {type: _giver(type) for type in ("MODEL", "VAE", "CONDITIONING", "LATENT", "CONTROL_NET")}
        ours = pack.load_nodes()
        self._nodes = {**ours, **{f"Test{type}": giver for type, giver in self._types.items()}}
        nodes.NODE_CLASS_MAPPINGS.update(self._nodes)
        titles = {name: kind.GET_SCHEMA().display_name for name, kind in ours.items()}
        nodes.NODE_DISPLAY_NAME_MAPPINGS.update(titles)
        server = SimpleNamespace(client_id=None, last_node_id=None, send_sync=lambda *about: None)
        limits = {"lru": 0, "ram": 0, "ram_inactive": 0}
        self._executor = execution.PromptExecutor(server, cache_type=execution.CacheType.CLASSIC, cache_args=limits)

    def close(self) -> None:
        import nodes

        for name in self._nodes:
            del nodes.NODE_CLASS_MAPPINGS[name]

    def give(self, type: str, name: str, value: Any) -> dict[str, Any]:
        """Return a node that gives an object."""
        self._types[type].objects[name] = value
        return node(f"Test{type}", name=name)

    def run(self, prompt: dict[str, Any]) -> dict[str, Any]:
        """Run a prompt as a queued one; return what its nodes show, and raise the first thing that is wrong."""
        import execution

        valid, error, outputs, _ = asyncio.run(execution.validate_prompt("test", prompt, None))
        assert valid, error
        self._executor.execute(prompt, "test", {}, outputs)
        assert self._executor.success, self._executor.status_messages[-1]
        return self._executor.history_result["outputs"]

    def value(self, prompt: dict[str, Any], link: list[Any]) -> Any:
        """Return what an output of a prompt gives."""
        from nodes import NODE_CLASS_MAPPINGS

        seen = self._seen  # one list for all calls: ComfyUI keeps the objects of nodes with the same id and type
        seen.clear()

        class Look:
            RETURN_TYPES, FUNCTION, CATEGORY, OUTPUT_NODE = (), "look", "", True

            @classmethod
            def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
                return {"required": {"value": ("*", {})}}

            @classmethod
            def VALIDATE_INPUTS(cls, input_types: Any) -> bool:  # noqa: N802
                return True

            def look(self, value: Any) -> tuple[()]:
                seen.append(value)
                return ()

        NODE_CLASS_MAPPINGS["TestLook"] = Look
        self.run({**prompt, "look": {"class_type": "TestLook", "inputs": {"value": link}}})
        del NODE_CLASS_MAPPINGS["TestLook"]
        return seen[0]
