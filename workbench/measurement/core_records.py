r"""``records``: what was measured here, as ComfyUI's own benchmark capture writes it: one JSON file for each run.

    python custom_nodes/ComfyUI-Paceline records compare_00001_comparison.json --output benchmarks

Reads files that *Compare Models* has saved. The form is schema 3 of ``comfy/benchmark/SPIKE.md`` in ComfyUI: every key
is there, and what was not measured is null. Of the workflow there are numbers and names of samplers, never a text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.settings import later_seed

Record = dict[str, Any]

SCHEMA, COLLECTOR = 3, "comfyui-paceline"

_RUN = "status image_count batch_size benchmark_id benchmark_version warmup_runs measured_runs seed"
_WORKFLOW = "resolution steps sampler scheduler cfg denoise seed samplers"
_DEVICE = (
    "backend gpu_model driver_version vram_is_unified pytorch_version comfyui_version os platform arch cpu_model "
    "cpu_cores_physical cpu_cores_logical total_vram_mb total_ram_mb vram_state offloaded weight_dtype compute_dtype "
    "attention_impl cuda_version cudnn_version compute_capability is_laptop pcie_gen pcie_width power_limit_w baseline"
)
_DURATIONS = "total_run_ms sampler_ms node_total_ms model_load_ms"
_PEAK = "vram_used_mb ram_used_mb cpu_percent vram_util_percent power_w temperature_c sm_clock_mhz mem_clock_mhz"
_SUMMARY = "energy_wh_per_image sec_per_image throttled"


def core_record(
    id: str,
    date: str,
    seconds: float,
    run: Mapping[str, Any],
    workflow: Mapping[str, Any],
    device: Mapping[str, Any],
    sampling_seconds: float | None = None,
    peak_bytes: int | None = None,
) -> Record:
    """Return a record of one run.

    ``id`` names it; ``date`` is UTC; ``seconds`` is the whole of what was timed, ``sampling_seconds`` the samplers'
    part; ``run``, ``workflow`` and ``device`` are what is known of these groups.
    """
    images, steps = run.get("image_count"), workflow.get("steps") if sampling_seconds else None
    return {
        "type": "benchmark",
        "capture_schema_version": SCHEMA,
        "collector_id": COLLECTOR,
        "prompt_id": id,
        "timestamp": date,
        "run": _group(_RUN, {"status": "success", "benchmark_id": id, **run}),
        "workflow": _group(_WORKFLOW, {"resolution": {"width": None, "height": None}, "samplers": [], **workflow}),
        "device": _group(_DEVICE, {"vram_is_unified": device.get("backend") == "mps", **device}),
        "durations": _group(_DURATIONS, {"total_run_ms": _ms(seconds), "sampler_ms": _ms(sampling_seconds)}),
        "nodes": [],
        "sampling": {
            "step_count": steps or 0,
            "step_durations_ms": [],
            "per_step_it_per_s": [],
            "avg_it_per_s": round(steps / sampling_seconds, 4) if steps and sampling_seconds else None,
        },
        "resources": {
            "sample_interval_ms": 0,
            "series": [],
            "peak": _group(_PEAK, {} if peak_bytes is None else {"vram_used_mb": round(peak_bytes / 2**20, 1)}),
        },
        "summary": _group(_SUMMARY, {"sec_per_image": round(seconds / images, 6)} if images else {}),
    }


def of_comparison(saved: Mapping[str, Any], name: str) -> Iterator[Record]:
    """Yield a record for each timed run of both sides of a comparison, as *Compare Models* saves it as ``name``."""
    around, settings = saved["surroundings"], saved["settings"]
    batch, backend = (settings.get("latent_shape") or [None])[0], around.get("backend")
    workflow = {one: settings.get(one) for one in ("steps", "scheduler", "cfg", "denoise", "seed")}
    workflow["sampler"] = settings.get("sampler_name")
    device = {
        "backend": backend,
        "cpu_model" if backend == "cpu" else "gpu_model": around["device"],
        "pytorch_version": around["torch"],
        "comfyui_version": around["comfyui"],
        "os": around["platform"],
    }
    for side, runs in saved["runs"].items():
        for number, one in enumerate(runs):
            parts = [one["sampling_seconds"], one["decode_seconds"]]
            run = {"image_count": batch, "batch_size": batch, "measured_runs": len(runs)}
            run["seed"] = later_seed(settings["seed"], number)
            id, seconds = f"{name}_{side}_{number + 1}", sum(part for part in parts if part is not None)
            measured = one["sampling_seconds"], one["device_bytes"]
            yield core_record(id, around["date"], seconds, run, workflow, device, *measured)


def write_records(records: Iterator[Record], folder: Path) -> list[Path]:
    """Write each record into a file of its own, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in records:
        written.append(folder / f"{record['prompt_id']}.json")
        written[-1].write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return written


def main(arguments: Sequence[str]) -> int:
    """Write the records of some files and return the exit status."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("records", description=__doc__, formatter_class=layout)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="what Compare Models has saved, *.json")
    parser.add_argument("--output", type=Path, default=Path("benchmarks"), help="folder, default: benchmarks")
    options = parser.parse_args(arguments)
    for path in options.files:
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            written = write_records(of_comparison(saved, path.stem.removesuffix("_comparison")), options.output)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"{path} is no comparison that Compare Models has saved ({type(error).__name__}: {error})."
            print(problem, file=sys.stderr)
            return 1
        print(f"{path}: {len(written)} records in {options.output}")
    return 0


def _group(keys: str, known: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(keys.split()), **known}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 4)
