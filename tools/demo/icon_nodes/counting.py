"""A node that counts what a network computes, for comparing the work of workflows."""

from __future__ import annotations

from typing import Any

import torch
from comfy.patcher_extension import WrappersMP
from comfy_api.latest import io
from server import PromptServer

EVENT = "demo.rows"
"""Websocket event after each sampling run: how many rows, conditional and unconditional ones, the network was given."""


class CountRows(io.ComfyNode):
    """Count below everything that skips steps; put it last, before the sampler."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DemoCountRows",
            display_name="Count Rows",
            category="icon model",
            description="Counts how many rows the network is given while the next sampler runs.",
            inputs=[io.Model.Input("model")],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def execute(cls, model: Any) -> io.NodeOutput:
        rows = 0

        @torch.compiler.disable(recursive=False)
        def count(executor: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal rows
            rows += len(x)
            return executor(x, *args, **kwargs)

        def sample(executor: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal rows
            rows = 0
            result = executor(*args, **kwargs)
            server = PromptServer.instance
            server.send_sync(EVENT, {"rows": rows, "prompt_id": server.last_prompt_id}, server.client_id)
            return result

        counted = model.clone()
        counted.add_wrapper(WrappersMP.DIFFUSION_MODEL, count)
        counted.add_wrapper(WrappersMP.OUTER_SAMPLE, sample)
        return io.NodeOutput(counted)
