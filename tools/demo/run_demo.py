"""Make a workflow faster in a real ComfyUI, and show on one page what that is worth and what else would do.

``make demo`` draws with a small trained model; ``CHECKPOINT=/path/model.safetensors make demo`` with yours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "demo")]

from comfy_host.client import ComfyClient, Prompt  # noqa: E402
from comfy_host.server import ComfyServer, has_gpu  # noqa: E402
from drawing import FEWER_STEPS, Drawing, Easel  # noqa: E402
from page import Found, LargePicture, Tuned, write  # noqa: E402
from workflows import ICON_TEXTS, PHOTO_TEXTS, Workflows, setting, with_inputs  # noqa: E402

OUTPUT = ROOT / "tools" / "demo" / "output" / "index.html"
SHARES_OF_STEPS = (0.5, 0.8)
BUDGETS = (0.05, 0.15)
CACHES = {"EasyCache": (0.07, 0.2), "LazyCache": (0.02, 0.1)}
"""ComfyUI's own nodes, with thresholds from careful to bold."""

TRIES = 1
"""Further thresholds, to come nearer to the same work."""

PICTURES_OF_A_CLICK = 9
"""About as long as so many pictures take the run, its probe and the proof of what was found."""

LARGE_ICONS = "a second icon model, with as many tokens as Stable Diffusion 1.5 has at 768 x 768"
STEPS_OF_LARGE = 10

FEW = 8
"""Steps, as today's distilled models take."""

BUDGET_OF_FEW = 0.15

SECONDS_FOR_LARGE = 42.0
ROUNDS, MOST_ROUNDS = 3, 20
"""Of a large picture: as many as make the answer clear, and as there is time for."""


@contextmanager
def part(title: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    print(f"\n{title}", flush=True)
    started = time.monotonic()
    yield
    print(f"  {time.monotonic() - started:.0f} s", flush=True)


def tune(server: ComfyServer, plain: Prompt) -> Tuned:
    """Make a workflow faster as *Make this workflow faster* does, with what is hardly visible, and say how it goes."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "workflow.json", Path(folder) / "faster.json"
        before.write_text(json.dumps(plain), encoding="utf-8")
        command = [sys.executable, str(ROOT), "tune", str(before), "-o", str(after), "--prove"]
        lines = []
        process = subprocess.Popen(
            [*command, "--server", server.base_url],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() != str(after):
                    print(f"  {line.strip()}", flush=True)
                    lines.append(line.strip())
        if process.returncode:
            raise SystemExit(f"tune ended with status {process.returncode}.")
        return Tuned(lines, json.loads(after.read_text(encoding="utf-8")) if after.exists() else plain)


def compare(easel: Easel, workflows: Workflows, plain: Prompt, faster: Prompt, short: bool) -> Found:
    """Draw with the faster workflow, and with what else does as much work.

    Where nothing is expected to be faster, Reuse Steps takes its place: work can be counted where time cannot tell.
    """
    name, how = "made faster", ""
    if faster == plain:
        faster = workflows.through(plain, "PacelineReuseSteps")
        name, how = "Reuse Steps", str(faster["PacelineReuseSteps"]["inputs"]["budget"])
    tuned = easel.draw(name, how, faster)
    steps = int(setting(plain, "steps"))
    as_much = steps_of(tuned, steps)
    counts = sorted({as_much, *(() if short else (round(share * steps) for share in SHARES_OF_STEPS))})
    points = [easel.draw(FEWER_STEPS, str(count), with_inputs(plain, "sampler", steps=count)) for count in counts]
    same_work = [one for one in points if one.setting == str(as_much)]
    for name, thresholds in CACHES.items():
        cache = partial(workflows.through, plain, name, "reuse_threshold")
        found = easel.curve(name, cache, thresholds)
        same_work.append(easel.nearest(name, cache, found, tuned.evaluations, 0 if short else TRIES))
        points += found
    if not short:
        points += easel.curve("Reuse Steps", partial(workflows.through, plain, "PacelineReuseSteps", "budget"), BUDGETS)
    return Found(easel.plain, tuned, same_work, easel.other_seed, points)


def steps_of(drawn: Drawing, most: int) -> int:
    """Return how many plain steps do as much work as a way to draw, at ``most``."""
    return min(most, math.ceil(drawn.evaluations - 0.05))


def few_steps(client: ComfyClient, workflows: Workflows, plain: Prompt, texts: Sequence[str]) -> list[Drawing]:
    """Draw with few steps: plain, with Reuse Steps, as many steps as that computes, and another seed."""
    few = with_inputs(plain, "sampler", steps=FEW)
    easel = Easel(client, workflows, few, texts)
    reuse = workflows.through(few, "PacelineReuseSteps", "budget", BUDGET_OF_FEW)
    reused = easel.draw("Reuse Steps", f"{BUDGET_OF_FEW:g}", reuse)
    count = steps_of(reused, FEW)
    return [
        easel.plain,
        reused,
        easel.draw(FEWER_STEPS, str(count), with_inputs(few, "sampler", steps=count)),
        easel.other_seed,
    ]


def where_time_goes(client: ComfyClient, workflows: Workflows, plain: Prompt) -> dict[str, Any]:
    """Return what Profile shows of a workflow."""
    result = client.run(workflows.measured(plain, "PacelineProfile"), timeout=3600)
    profile: dict[str, Any] = result.outputs["measured"]["paceline_profile"][0]
    return profile


def large_picture(client: ComfyClient, workflows: Workflows, plain: Prompt, model: str) -> LargePicture:
    """Compare a large picture without and with Apply ToMe, in as many rounds as there is time for."""
    seconds = client.run(plain, timeout=3600).seconds
    # Beside the rounds, each shorter than two of it, there are this one, a round before, and a repeated one.
    most = max(1, min(MOST_ROUNDS, int((SECONDS_FOR_LARGE / seconds - 3.7) / 1.7)))
    print(f"  one picture takes {seconds:.0f} s; plain and merged in turn, rounds: at most {most}", flush=True)
    merged = workflows.through(plain, "PacelineApplyToMe", "preset", "quality")
    rounds = {"runs": min(ROUNDS, most), "most_runs": most}
    sides = {"model_baseline": ["model", 0], "model_optimized": merged["sampler"]["inputs"]["model"]}
    comparing = workflows.measured(merged, "PacelineCompareModels", **sides, **rounds)
    result = client.run(comparing, timeout=3600)
    found = result.outputs["measured"]["paceline_comparison"][0]
    shown = {side: files for side, files in found["files"]["pictures"].items() if side != "other_seed"}
    pictures = {side: [client.image(**one) for one in files] for side, files in shown.items()}
    return LargePicture(model, plain, found, pictures)


def find_checkpoint() -> Path | None:
    """Return the user's checkpoint; None if none is named."""
    given = os.environ.get("CHECKPOINT")
    path = Path(given or "").expanduser().resolve()
    if given and not path.is_file():
        raise SystemExit(f"CHECKPOINT is {given}, but there is no such file. Give the path of a .safetensors file.")
    return path if given else None


def run(server: ComfyServer, checkpoint: Path | None, options: argparse.Namespace) -> None:
    """Do everything on a running server, and write the page."""
    with server.client() as client:
        workflows = Workflows(client.object_info())
        plain, model, texts = workflows.icons(options.steps), "a small trained icon model", ICON_TEXTS
        large, large_model = workflows.large_icons(min(STEPS_OF_LARGE, options.steps)), LARGE_ICONS
        if checkpoint is not None:
            plain, texts = workflows.checkpoint(checkpoint, options.size, options.steps), PHOTO_TEXTS
            model = large_model = checkpoint.name
            settings = {"steps": 1, "cfg": 1.0} if options.short else {"steps": options.steps}
            large = workflows.checkpoint(checkpoint, options.large_size, **settings)
        with part(f"1 of 5: plain pictures, {options.steps} steps, by {model}"):
            easel = Easel(client, workflows, plain, texts)
            profile = where_time_goes(client, workflows, plain)
        seconds = easel.seconds
        with part(
            f"2 of 5: Make this workflow faster, as one click does (about {PICTURES_OF_A_CLICK * seconds:.0f} s)"
        ):
            tuned = tune(server, plain)
        ways = 6 if options.short else 12
        with part(f"3 of 5: as much work in other ways (about {0.6 * ways * len(texts) * seconds:.0f} s)"):
            found = compare(easel, workflows, plain, tuned.workflow, options.short)
        few = list[Drawing]()
        if checkpoint is None or not options.short:
            with part(f"4 of 5: the same in {FEW} steps (about {1.3 * len(texts) * seconds:.0f} s)"):
                few = few_steps(client, workflows, plain, texts)
        with part(f"5 of 5: Apply ToMe, by {large_model} (at most about {SECONDS_FOR_LARGE:.0f} s)"):
            merged = large_picture(client, workflows, large, large_model)
    write(options.output, model, plain, texts, tuned, found, few, profile, merged)
    print(f"\n{tuned.sentence}")
    for one in (found.tuned, *found.same_work, found.other_seed):
        print(f"  {one.summary}")
    print(f"Apply ToMe at {merged.settings}: {merged.sentence}")
    print(f"\nAll of it with pictures: {options.output}")


def main() -> None:
    """Start ComfyUI and show what the pack does."""
    checkpoint, gpu = find_checkpoint(), has_gpu()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="width and height of the checkpoint's pictures in pixels")
    parser.add_argument("--steps", type=int, default=30, help="steps of the workflow that is made faster")
    short = checkpoint is not None and not gpu
    parser.add_argument("--short", action="store_true", default=short, help="fewer points on the plot")
    parser.add_argument("--large-size", type=int, default=768, help="of those that Apply ToMe is shown with")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page")
    options = parser.parse_args()
    print("Starting ComfyUI ...", flush=True)
    packs = [ROOT / "tools" / "demo" / "icon_nodes"]
    models = {"checkpoints": [checkpoint]} if checkpoint else {}
    with ComfyServer(custom_nodes=packs, models=models) as server:
        run(server, checkpoint, options)


if __name__ == "__main__":
    main()
