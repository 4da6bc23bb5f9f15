"""Sweeps with the demo's trained model, in empty folders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparing import Emoji
from writing import comfyui_writes_to


class Sweeping:
    """The demo's trained model, and sweeps with it."""

    def __init__(self, emoji: Emoji) -> None:
        self.emoji, self.studio, self.model = emoji, emoji.studio, emoji.model

    def inputs(self, grid: str, **changes: Any) -> dict[str, Any]:
        solver = {"steps": 2, "sampler_name": "dpmpp_2m", "scheduler": "karras", "runs": 1}
        sampling = self.emoji.sampling(latent_image=self.emoji.whole, **solver)
        return {"model": self.model, "grid": grid, "study": "a study", "largest_difference": 1.0, **sampling, **changes}

    def run(self, grid: str, **changes: Any) -> Any:
        with torch.inference_mode():
            return self.studio.nodes["PacelineBenchmarkSweep"].execute(**self.inputs(grid, **changes))


@pytest.fixture(scope="module")
def sweeping(emoji: Emoji) -> Sweeping:
    return Sweeping(emoji)


@pytest.fixture(autouse=True)
def folders(tmp_path, comfy):
    """ComfyUI's output and user folders, empty."""
    with comfyui_writes_to(output=tmp_path / "output", user=tmp_path / "user"):
        yield tmp_path
