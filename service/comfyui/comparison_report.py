"""A comparison as text and as data, for the node, the picture and the file."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from typing import Any

import torch
from PIL import Image

from ...measure.evidence import AS_GOOD, CONTROLS, Control, Evidence, share_of
from ...measure.measure import MOST_SHOWN, SIDES, Comparison
from ...measure.picture import difference_gain, side_by_side, spread
from ...measure.verdict import difference_lines, in_seconds, noise_floor
from ...optimizers.core.devices import device_name
from ...optimizers.in_comfyui.structure.model_facts import describe_model
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher
from .machine import host_version
from .output_files import Entry, OutputFiles

_UNITS = {
    "step": "one step",
    "sampling": "one sampling run",
    "decode": "one decoding",
    "picture": "one sampling and decoding",
}

_BADGES = {"faster": "active", "no_effect": "inactive", "broken": "failed"}
"""What the page shows for the state of a verdict, where it is not ``partly``."""


def comparison_lines(found: Comparison) -> list[str]:
    """Return the lines below the verdict."""
    before, after = found.seconds.values()
    rounds = "1 round" if len(before) == 1 else f"{len(before)} rounds, each from another seed,"
    lines = [f"{_UNITS[found.unit]}: baseline {in_seconds(before)}, optimized {in_seconds(after)}; {rounds} in turn"]
    if found.peak("baseline") is not None:
        lines.append(f"peak device memory {' -> '.join(_bytes(found.peak(side)) for side in SIDES)}")
    lines += difference_lines(found.evidence)
    if found.evidence.repeat is None:
        why = "both sides drew the same" if found.evidence.same_bits else "it ran once"
        lines.append(f"baseline repeated: not measured, as {why}")
    lines += [f"{title}: {one['text']}" for title, one in found.about["activity"].items()]
    return [*lines, *found.notes]


def record(found: Comparison) -> dict[str, Any]:
    """Return everything that was found, for JSON and for the page (``Comparison`` in web/js/measurements.d.ts).

    Numbers that do not exist are None, an infinite PSNR too.
    """
    evidence = found.evidence
    low, high = evidence.speedup.interval or (None, None)
    return {
        "verdict": found.verdict.text,
        "state": found.verdict.state,
        "badge": badge(found),
        "quality": found.verdict.quality,
        "speedup": evidence.speedup.ratio,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_of": found.unit,
        "clear": evidence.speedup.clear,
        "seconds": found.seconds,
        "peak_device_bytes": {side: found.peak(side) for side in SIDES},
        "difference": asdict(evidence.difference),
        "farthest": {"run": found.worst_run or 1, "picture": evidence.worst + 1, "distance": asdict(evidence.judged)},
        "distances": [asdict(one) for one in evidence.distances],
        "seed_shares": [share_of(one, evidence.seed) for one in evidence.distances],
        "frames": evidence.frames,
        "count": evidence.count,
        "shown": [index + 1 for index in found.shown],
        "gains": _gains(found),
        "sound": None if evidence.sound is None else asdict(evidence.sound),
        "noise_floor": {name: asdict(distance) for name, distance in noise_floor(evidence).items()},
        **dict.fromkeys(CONTROLS),
        **{one.kind: _control(evidence, one) for one in evidence.controls},
        "seed_share": found.verdict.seed_share,
        "seed_share_mean": found.verdict.mean_share,
        "same_bits": evidence.same_bits,
        "lines": comparison_lines(found),
        "notes": list(found.notes),
        "runs": {side: [asdict(run) for run in runs] for side, runs in found.runs.items()},
        **found.about,
    }


def badge(found: Comparison) -> str:
    """Return the state that badge and panel show for what a verdict found.

    Another picture is a price, not a fault. A gain that a control brings as well is none to be proud of.
    """
    state = found.verdict.state
    if state == "faster" and found.evidence.as_good:
        return "partly"
    faulty = state == "suspicious" and found.verdict.quality != "another picture"
    return "failed" if faulty else _BADGES.get(state, "partly")


def save(
    found: Comparison,
    record: dict[str, object],
    sheet: Image.Image,
    output: OutputFiles,
    workflow: dict[str, object] | None = None,
) -> dict[str, Any]:
    """Write the files and return them by name, as ComfyUI's front end takes them.

    They stand under ``files`` in the JSON file beside ``record``; ``workflow`` goes into the sheet, so that dropping it
    on the canvas opens it.
    """
    pictures: dict[str, list[Entry]] = {}
    for name, images in found.pictures.items():
        pictures[name] = [
            output.save_picture(
                f"{name}_{index + 1}.png" if len(images) > 1 else f"{name}.png", Image.fromarray(images[index].numpy())
            )
            for index in (spread(len(images), MOST_SHOWN) if name == "other_seed" else found.shown)
        ]
    files: dict[str, Any] = {"pictures": pictures, "comparison": output.save_picture("comparison.png", sheet, workflow)}
    if (frames := found.evidence.frames) > 1:
        first = found.evidence.worst // frames * frames
        motion = side_by_side(*(found.pictures[side][first : first + frames] for side in SIDES))
        files["motion"] = output.save_motion("comparison.webp", motion)
    if found.sounds is not None and found.sounds.rate is not None:
        waves, rate = found.sounds.waves, found.sounds.rate
        files["sounds"] = {side: output.save_sound(f"{side}.wav", wave, rate) for side, wave in waves.items()}
    output.save_json("comparison.json", {**record, "files": files})
    return files


def measured_on(numbers: dict[str, Any]) -> str:
    """Return in one line what a comparison, as it is saved, was measured on and with."""
    around, settings = numbers["surroundings"], numbers["settings"]
    batch, *_, height, width = settings["latent_shape"]
    return (
        f"{around['model']} on {around['device']}; latent {width} x {height}, batch {batch}, {settings['steps']} steps "
        f"of {settings['sampler_name']} ({settings['scheduler']}), cfg {settings['cfg']:g}; torch {around['torch']}, "
        f"ComfyUI {around['comfyui']}"
    )


def environment(model: ModelPatcher) -> dict[str, Any]:
    """Return the model's class, the hardware and the versions that the numbers belong to."""
    return {
        "model": describe_model(model),
        "device": device_name(model.load_device),
        "backend": torch.device(model.load_device).type,
        "torch_threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "comfyui": host_version(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _gains(found: Comparison) -> dict[str, list[int]]:
    """Return how much the difference of each picture that is shown is amplified, by side."""
    before = found.pictures["baseline"]
    drawn = {side: found.pictures[side] for side in ("optimized", *CONTROLS) if side in found.pictures}
    return {side: [difference_gain(before[at], pictures[at]) for at in found.shown] for side, pictures in drawn.items()}


def _control(evidence: Evidence, control: Control) -> dict[str, Any]:
    """Return a control, for JSON."""
    ratio = evidence.ratio(control)
    return {**asdict(control), "ratio": ratio, "as_good": ratio is not None and ratio <= AS_GOOD}


def _bytes(size: int | None) -> str:
    return "?" if size is None else f"{size / 2**30:.2f} GiB"
