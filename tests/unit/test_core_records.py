"""Measurements in the words of ComfyUI's own benchmark capture (schema 3): every key, numbers only, one file a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from comfy_host.paths import ROOT
from paceline.workbench.measurement.core_records import main, of_comparison

# The groups and keys of the contract, ``comfy/benchmark/SPIKE.md`` in ComfyUI, section 3.
GROUPS = {
    "run": "status image_count batch_size benchmark_id benchmark_version warmup_runs measured_runs seed",
    "workflow": "resolution steps sampler scheduler cfg denoise seed samplers",
    "durations": "total_run_ms sampler_ms node_total_ms model_load_ms",
    "sampling": "step_count step_durations_ms per_step_it_per_s avg_it_per_s",
    "resources": "sample_interval_ms series peak",
    "summary": "energy_wh_per_image sec_per_image throttled",
}
SECRET = "a lighthouse that nobody may read about"
COMPARISON: dict[str, Any] = {
    "verdict": "1.50x faster",
    "prompt": SECRET,
    "settings": {
        "seed": 7, "steps": 20, "cfg": 4.5, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0,
        "prompts": 1, "latent_shape": [2, 4, 128, 96], "text": SECRET,
    },
    "surroundings": {
        "model": "SDXL", "device": "NVIDIA H100 80GB HBM3", "backend": "cuda", "torch_threads": 8,
        "platform": "Linux-6.1", "python": "3.12.3", "torch": "2.15.0", "comfyui": "0.33.0",
        "date": "2026-11-26T18:18:52Z",
    },
    "runs": {
        side: [
            {"sampling_seconds": seconds, "step_seconds": 0.1, "decode_seconds": 0.5, "device_bytes": 2**30,
             "process_bytes": None},
        ] * 2
        for side, seconds in (("baseline", 4.0), ("optimized", 2.0))
    },
}  # fmt: skip


def test_each_timed_run_of_a_comparison_becomes_a_file_without_any_text(tmp_path: Path, capsys):
    saved = tmp_path / "compare_00001_comparison.json"
    saved.write_text(json.dumps(COMPARISON))
    assert main([str(saved), "--output", str(tmp_path / "records")]) == 0
    files = sorted((tmp_path / "records").iterdir())
    expected = [f"compare_00001_{side}_{number}.json" for side in ("baseline", "optimized") for number in (1, 2)]
    assert [file.name for file in files] == expected
    assert not any(SECRET in file.read_text() for file in files)
    record = json.loads(files[0].read_text())
    assert (record["type"], record["capture_schema_version"]) == ("benchmark", 3)
    for group, keys in GROUPS.items():
        assert [*record[group]] and {*record[group]} == {*keys.split()}, group
    assert record["durations"]["total_run_ms"] == 4500 and record["durations"]["sampler_ms"] == 4000
    assert record["sampling"]["step_count"] == 20 and record["sampling"]["avg_it_per_s"] == 5
    assert record["run"]["image_count"] == 2 and record["summary"]["sec_per_image"] == 2.25
    assert record["resources"]["peak"]["vram_used_mb"] == 1024
    assert record["device"]["gpu_model"] == "NVIDIA H100 80GB HBM3" and record["device"]["cpu_model"] is None
    assert (record["workflow"]["sampler"], record["workflow"]["steps"]) == ("euler", 20)
    assert record["timestamp"] == "2026-11-26T18:18:52Z"
    assert [json.loads(file.read_text())["run"]["seed"] for file in files] == [7, 8, 7, 8]


def test_seeds_go_on_from_0_after_the_largest_as_runs_do():
    settings = COMPARISON["settings"] | {"seed": 2**64 - 1}
    records = of_comparison(COMPARISON | {"settings": settings}, "last")
    assert [record["run"]["seed"] for record in records] == [2**64 - 1, 0] * 2


def test_what_is_no_comparison_is_named(tmp_path: Path, capsys):
    path = tmp_path / "other.json"
    path.write_text("{}")
    assert main([str(path)]) == 1
    assert "other.json is no comparison that Compare Models has saved" in capsys.readouterr().err


def test_each_timed_row_of_a_file_of_results_becomes_a_record(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from collect import of_rows

    results = json.loads((ROOT / "benchmarks" / "results" / "gpu_attention_backends.json").read_text())
    records = [*of_rows(results, "gpu_attention_backends")]
    timed = [row for row in results["rows"] if row["seconds_median"] is not None]
    assert len(records) == len(timed) > 0
    first = records[0]
    assert first["durations"]["total_run_ms"] == round(timed[0]["seconds_median"] * 1000, 4)
    assert first["device"]["backend"] == "cuda" and first["run"]["measured_runs"] == timed[0]["rounds"]
    assert first["run"]["benchmark_id"].endswith(timed[0]["name"])
