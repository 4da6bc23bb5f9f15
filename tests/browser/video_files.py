"""A comparison of two videos with sound, as files in ComfyUI's output folder and as the page is told of it."""

from __future__ import annotations

import wave
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from PIL import Image


def as_a_video(folder: Path) -> dict[str, Any]:
    """Write a video of 40 frames with its sounds as Compare Models does, and return what the page is shown of it."""
    from paceline.workbench.measurement.picture import side_by_side, spread

    folder.mkdir(exist_ok=True)
    rows, columns = torch.linspace(0, 3, 96)[:, None], torch.linspace(0, 5, 160)
    waves = [torch.sin(rows * 3 + columns * 2 + frame / 6) for frame in range(41)]
    video = torch.stack([torch.stack([one, one.roll(9, 1), after], -1) for one, after in pairwise(waves)])
    left = video.mul(100).add(128).byte()
    right = left.clone()
    right[24, 20:60, 50:110] = 255 - right[24, 20:60, 50:110]
    shown = spread(40, 16, 24)
    entry = {"subfolder": "video", "type": "output"}
    pictures = {}
    for side, frames in (("baseline", left), ("optimized", right)):
        pictures[side] = [entry | {"filename": f"{side}_{index + 1}.png"} for index in shown]
        for index in shown:
            Image.fromarray(frames[index].numpy()).save(folder / f"{side}_{index + 1}.png")
        with wave.open(str(folder / f"{side}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(32_000))
    first, *rest = side_by_side(left, right)
    first.save(folder / "comparison.webp", save_all=True, append_images=rest, duration=42, loop=0)
    verdict = "1.52x faster (1.50 to 1.55); difference is 1/9 of a seed change, 1/4 in frame 25, the worst of 40 frames"
    return {
        "pictures": pictures, "numbers": [index + 1 for index in shown], "count": 40, "first": shown.index(24),
        "frames": 40, "shares": [0.25 if index == 24 else 0.0 for index in shown],
        "motion": entry | {"filename": "comparison.webp"}, "quality": "audible", "fewer_steps": None,
        "sounds": {side: entry | {"filename": f"{side}.wav"} for side in pictures},
        "verdict": f"{verdict}; difference of the sound is 1/3 of a seed change.", "speedup": 1.52, "found": "faster",
    }  # fmt: skip
