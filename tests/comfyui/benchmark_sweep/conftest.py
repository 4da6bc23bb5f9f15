"""Sweeps with the demo's trained model, in empty folders."""

from __future__ import annotations

from typing import Any

import emoji_model
import pytest
import torch
from writing import comfyui_writes_to


class Sweeping:
    """The demo's trained model, and sweeps with it."""

    def __init__(self, studio: Any) -> None:
        self.studio = studio
        self.model, encode = emoji_model.load()
        self.positive, self.negative = encode("red apple"), encode("")

    def inputs(self, grid: str, **changes: Any) -> dict[str, Any]:
        return {
            "model": self.model, "positive": self.positive, "negative": self.negative, "grid": grid,
            "latent_image": {"samples": torch.zeros(1, 4, 32, 32)}, "study": "a study", "seed": 42, "steps": 2,
            "cfg": 2.0, "sampler_name": "dpmpp_2m", "scheduler": "karras", "denoise": 1.0, "runs": 1,
            "warmup_runs": 0, "largest_difference": 1.0, **changes,
        }  # fmt: skip

    def run(self, grid: str, **changes: Any) -> Any:
        with torch.inference_mode():
            return self.studio.nodes["PacelineBenchmarkSweep"].execute(**self.inputs(grid, **changes))


@pytest.fixture(scope="module")
def sweeping(studio) -> Sweeping:
    return Sweeping(studio)


@pytest.fixture(autouse=True)
def folders(tmp_path, comfy):
    """ComfyUI's output and user folders, empty."""
    with comfyui_writes_to(output=tmp_path / "output", user=tmp_path / "user"):
        yield tmp_path
