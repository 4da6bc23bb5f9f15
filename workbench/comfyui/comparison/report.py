"""A comparison as text and as data, for the node, the picture and the file."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
from PIL import Image

from ....core.devices import device_name
from ....optimizers.hosts.comfyui.model import describe_model
from ....optimizers.hosts.comfyui.protocols import ModelPatcher
from ...measurement.evidence import share_of
from ...measurement.picture import side_by_side, spread
from ...measurement.verdict_text import AS_GOOD, difference_lines, in_seconds, noise_floor
from ..machine import host_version
from ..output_files import Entry, OutputFiles
from .findings import MOST_SHOWN, Comparison, seconds
from .rounds import TimedRun

_UNITS = {
    "step": "one step",
    "sampling": "one sampling run",
    "decode": "one decoding",
    "picture": "one sampling and decoding",
}

_SAVED = ("baseline", "optimized", "other_seed", "fewer_steps")

Files = dict[str, Entry | list[Entry] | dict[str, Entry]]


def summary_lines(found: Comparison) -> list[str]:
    """Return what stands below the verdict."""
    before, after = ([seconds(run, found.unit) for run in runs] for runs in (found.baseline, found.optimized))
    rounds = "1 round" if len(before) == 1 else f"{len(before)} rounds, each from another seed,"
    lines = [f"{_UNITS[found.unit]}: baseline {in_seconds(before)}, optimized {in_seconds(after)}; {rounds} in turn"]
    memory = [
        f"{title} {_bytes(peak(found.baseline, key))} -> {_bytes(peak(found.optimized, key))}"
        for title, key in (("device memory", "device_bytes"), ("memory of the process", "process_bytes"))
        if peak(found.baseline, key) is not None
    ]
    lines += [f"peak {', '.join(memory)}"] if memory else []
    lines += difference_lines(found.evidence)
    if found.evidence.repeat is None:
        why = "both sides drew the same" if found.evidence.same_bits else "it ran once"
        lines.append(f"baseline repeated: not measured, as {why}")
    lines += [f"{title}: {one.text}" for title, one in found.activity.items()]
    return [*lines, *found.notes]


def record(found: Comparison) -> dict[str, Any]:
    """Return everything that was found, for JSON. Numbers that do not exist are None, an infinite PSNR too."""
    speedup = found.evidence.speedup
    low, high = speedup.interval or (None, None)
    return {
        "verdict": found.verdict.text,
        "state": found.verdict.state,
        "speedup": speedup.ratio,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_of": found.unit,
        "seconds": _sides(found, lambda runs: median(seconds(run, found.unit) for run in runs)),
        "peak_device_bytes": _sides(found, lambda runs: peak(runs, "device_bytes")),
        "peak_process_bytes": _sides(found, lambda runs: peak(runs, "process_bytes")),
        "more_runs": speedup.more_rounds,
        "difference": asdict(found.evidence.difference),
        "difference_run": found.worst_run,
        "farthest": _farthest(found),
        "distances": [asdict(one) for one in found.distances],
        "seed_shares": [share_of(one, found.evidence.seed) for one in found.distances],
        "frames": found.evidence.frames,
        "count": found.evidence.count,
        "shown": [index + 1 for index in found.shown],
        "sound": None if (sound := found.evidence.sound) is None else asdict(sound),
        "noise_floor": {name: asdict(distance) for name, distance in noise_floor(found.evidence).items()},
        "fewer_steps": _control(found),
        "seed_share": found.verdict.seed_share,
        "seed_share_mean": found.verdict.mean_share,
        "same_bits": found.evidence.same_bits,
        "latent_change": found.latent_change if math.isfinite(found.latent_change) else None,
        "pictures": "rough previews of the latent" if found.from_preview else "decoded by the VAE",
        "activity": {
            title: {"state": summary.state, "text": summary.text, "details": list(summary.lines)}
            for title, summary in found.activity.items()
        },
        "notes": list(found.notes),
        "settings": {**found.job.settings(), **asdict(found.settings), "runs": len(found.baseline)},
        "runs": _sides(found, lambda runs: [asdict(run) for run in runs]),
        "reports": found.reports,
    }


def save(
    found: Comparison,
    record: dict[str, object],
    sheet: Image.Image,
    output: OutputFiles,
    workflow: dict[str, object] | None = None,
) -> Files:
    """Write the files and return what ComfyUI's front end shows: ``{"json": {"filename", "subfolder", "type"}, ...}``.

    The names of the files are added to ``record`` under ``files``; ``workflow`` goes into the sheet, so that dropping
    it on the canvas opens it.
    """
    pictures = found.pictures
    lists: dict[str, list[Entry]] = {}
    for name in _SAVED:
        images = getattr(pictures, name)
        if images is None:
            continue
        lists[name] = [
            output.save_picture(
                f"{name}_{index + 1}.png" if len(images) > 1 else f"{name}.png", Image.fromarray(images[index].numpy())
            )
            for index in (spread(len(images), MOST_SHOWN) if name == "other_seed" else found.shown)
        ]
    single = {
        "comparison": output.save_picture("comparison.png", sheet, workflow),
        "json": output.entry("comparison.json"),
    }
    if (frames := found.evidence.frames) > 1:
        first = found.evidence.worst // frames * frames
        video = slice(first, first + frames)
        motion = side_by_side(pictures.baseline[video], pictures.optimized[video])
        single["motion"] = output.save_motion("comparison.webp", motion)
    sounds: dict[str, Entry] = {}
    if found.sounds is not None and found.sounds.rate is not None:
        waves, rate = found.sounds.waves, found.sounds.rate
        sounds = {side: output.save_sound(f"{side}.wav", wave, rate) for side, wave in waves.items()}
    names: dict[str, object] = {name: [entry["filename"] for entry in entries] for name, entries in lists.items()}
    names |= {name: entry["filename"] for name, entry in single.items()}
    names |= {"sounds": {side: entry["filename"] for side, entry in sounds.items()}} if sounds else {}
    output.save_json("comparison.json", {**record, "files": names})
    return {**lists, **single, "sounds": sounds}


def measured_on(numbers: dict[str, Any]) -> str:
    """Return in one line what a comparison, as it is saved, was measured on and with."""
    around, settings = numbers["surroundings"], numbers["settings"]
    batch, *_, height, width = settings["latent_shape"]
    sampling = "as in the workflow"
    if "sampler_name" in settings:
        sampling = f"of {settings['sampler_name']} ({settings['scheduler']}), cfg {settings['cfg']:g}"
    return (
        f"{around['model']} on {around['device']}; latent {width} x {height}, batch {batch}, {settings['steps']} steps "
        f"{sampling}; torch {around['torch']}, ComfyUI {around['comfyui']}"
    )


def environment(model: ModelPatcher) -> dict[str, Any]:
    """Return the model's class, the hardware and the versions that the numbers belong to."""
    return {
        "model": describe_model(model),
        "device": device_name(model.load_device),
        "torch_threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "comfyui": host_version(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def peak(runs: list[TimedRun], key: str) -> int | None:
    """Return the largest of the runs' peaks; None if it was not measured."""
    return max((value for run in runs if (value := getattr(run, key)) is not None), default=None)


def _farthest(found: Comparison) -> dict[str, Any] | None:
    """Return the single picture that is judged, for JSON; run and picture are counted from 1."""
    worst = found.evidence.farthest
    if worst is None:
        return None
    numbers = {"run": found.worst_run or 1, "picture": worst.picture}
    return {**numbers, "distance": asdict(worst.alone), "region_rmse": worst.region}


def _control(found: Comparison) -> dict[str, Any] | None:
    """Return the baseline with fewer steps, for JSON."""
    control, ratio = found.evidence.fewer_steps, found.evidence.control_ratio
    if control is None:
        return None
    return {**asdict(control), "ratio": ratio, "as_good": ratio is not None and ratio <= AS_GOOD}


def _sides(found: Comparison, what: Callable[[list[TimedRun]], Any]) -> dict[str, Any]:
    return {"baseline": what(found.baseline), "optimized": what(found.optimized)}


def _bytes(size: int | None) -> str:
    return "?" if size is None else f"{size / 2**30:.2f} GiB"
