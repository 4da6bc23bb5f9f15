"""Run the example workflows in a real ComfyUI, headless, and show what the nodes did to speed and image.

``make demo`` uses a generated model of Stable Diffusion 1.5's layout; ``CHECKPOINT=/path/model.safetensors make demo``
uses your own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "demo")]

from comfy_host.client import ComfyClient, Result  # noqa: E402
from comfy_host.server import ComfyServer, has_gpu  # noqa: E402
from picture import amplified_difference, side_by_side  # noqa: E402
from PIL import Image  # noqa: E402
from prompts import Prompt, emoji_workflow, example_workflow, nodes_of, with_inputs  # noqa: E402
from quality import Distance, mean_distance  # noqa: E402

OUTPUT = ROOT / "demo" / "output"
EMOJI_TEXTS = ["red apple", "watermelon", "penguin", "cherries"]
SEED, OTHER_SEED = 42, 1042


@dataclass
class Row:
    """One variant: its prompt, and what its runs gave."""

    name: str
    prompt: Prompt
    steps: list[float] = field(default_factory=list)
    first_steps: list[float] = field(default_factory=list)
    pictures: list[Image.Image] = field(default_factory=list)
    peak_bytes: int = 0
    report: str = ""

    def add(self, result: Result, peak_bytes: int) -> None:
        """Add one run."""
        for sampler in nodes_of(self.prompt, "KSampler"):
            self.steps += result.step_seconds(sampler)
            self.first_steps.append(result.first_step_seconds(sampler))
        # The same prompt gives the same pictures: keep those of the first run.
        self.pictures = self.pictures or [images[0] for _, images in sorted(result.images.items())]
        self.peak_bytes = max(self.peak_bytes, peak_bytes)
        self.report = next((texts[0] for texts in result.texts.values()), self.report)


def measure(server: ComfyServer, client: ComfyClient, rows: list[Row], rounds: int) -> None:
    """Run every row ``rounds`` times, in turn, so that a drifting machine meets all of them alike."""
    for number in range(1, rounds + 1):
        for row in rows:
            print(f"  round {number} of {rounds}: {row.name} ...", end="", flush=True)
            client.free()  # forget cached results and models: every run does all of its work
            server.reset_peak_memory()
            result = client.run(row.prompt, timeout=1800)
            row.add(result, server.peak_memory_bytes())
            print(f" {result.seconds:.1f} s")


def print_table(title: str, rows: list[Row]) -> None:
    """Print one line for each row, compared with the first."""
    reference = rows[0]
    header = f"{'':<26}{'s/step':>9}{'speed-up':>10}{'first step':>12}{'peak MiB':>10}{'PSNR dB':>9}{'SSIM':>8}"
    print(f"\n{title}\n{header}\n{'-' * len(header)}")
    for row in rows:
        gap = Distance(float("inf"), 1.0) if row is reference else mean_distance(row.pictures, reference.pictures)
        psnr = "same" if gap.psnr == float("inf") else f"{gap.psnr:.1f}"
        seconds = median(row.steps)
        print(
            f"{row.name:<26}{seconds:>9.3f}{median(reference.steps) / seconds:>9.2f}x{median(row.first_steps):>12.2f}"
            f"{row.peak_bytes / 2**20:>10.0f}{psnr:>9}{gap.ssim:>8.3f}"
        )


def save_picture(name: str, rows: list[Row], cell: int) -> Path:
    """Write the baseline, the optimised pictures, their difference and another seed side by side."""
    by_name = {row.name: row for row in rows}
    baseline, fast, other = (by_name[key].pictures for key in ("baseline", "ToMe + attention", "another seed"))
    difference = [amplified_difference(a, b) for a, b in zip(fast, baseline, strict=True)]
    titles = ("baseline", "ToMe + attention", "difference x 4", "another seed")
    columns = list(zip(titles, (baseline, fast, difference, other), strict=True))
    path = OUTPUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    side_by_side(columns, cell).save(path)
    return path


def four_rows(build: Callable[[bool, int], Prompt]) -> list[Row]:
    """Return the variants: two that are compared, and two that make the comparison readable."""
    return [
        Row("baseline", build(False, SEED)),
        Row("ToMe + attention", build(True, SEED)),
        Row("baseline, repeated", build(False, SEED)),
        Row("another seed", build(False, OTHER_SEED)),
    ]


def checkpoint_rows(client: ComfyClient, checkpoint: Path, size: int, steps: int) -> list[Row]:
    """Return the shipped example workflows, set to this checkpoint."""
    info = client.object_info()
    files = {True: "Text to image - token merging.json", False: "Text to image - without Paceline.json"}

    def build(optimized: bool, seed: int) -> Prompt:
        prompt = example_workflow(ROOT / "example_workflows" / files[optimized], info)
        prompt = with_inputs(prompt, "CheckpointLoaderSimple", ckpt_name=checkpoint.name)
        prompt = with_inputs(prompt, "EmptyLatentImage", width=size, height=size)
        return with_inputs(prompt, "KSampler", seed=seed, steps=steps)

    return four_rows(build)


def find_checkpoint() -> tuple[Path, str]:
    """Return the user's checkpoint, or a generated one, and how to name it."""
    given = os.environ.get("CHECKPOINT")
    if given:
        path = Path(given).expanduser().resolve()
        if not path.is_file():
            raise SystemExit(f"CHECKPOINT is {given}, but there is no such file. Give the path of a .safetensors file.")
        return path, path.name
    from comfy_host import cached, in_process

    print("Preparing a model in Stable Diffusion 1.5's layout with random weights ...", flush=True)
    in_process.bootstrap()
    path = cached.generated("sd15")
    return path, "generated model, SD 1.5 layout, random weights"


def main() -> None:
    """Measure both models and print what was found."""
    gpu = has_gpu()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="width and height of the checkpoint's image in pixels")
    parser.add_argument("--steps", type=int, default=20 if gpu else 3, help="sampling steps of the checkpoint")
    parser.add_argument("--rounds", type=int, default=3 if gpu else 2, help="times each variant of it is run")
    options = parser.parse_args()

    checkpoint, name = find_checkpoint()
    print("Starting ComfyUI ...", flush=True)
    packs, models = [ROOT / "demo" / "emoji_nodes"], {"checkpoints": [checkpoint]}
    with ComfyServer(custom_nodes=packs, models=models) as server, server.client() as client:
        stats = client.get("/system_stats")
        system = stats["system"]
        print(f"ComfyUI {system['comfyui_version']}, torch {system['pytorch_version']}, {stats['devices'][0]['name']}")

        print(f"\n{name}, {options.size} x {options.size}, {options.steps} steps")
        rows = checkpoint_rows(client, checkpoint, options.size, options.steps)
        measure(server, client, rows, options.rounds)
        print("\nA small model trained on emoji, 32 x 32")
        info = client.object_info()
        emoji = four_rows(lambda optimized, seed: emoji_workflow(info, EMOJI_TEXTS, seed, optimized))
        measure(server, client, emoji, rounds=1)

    print_table(f"{name}: {options.size} x {options.size}", rows)
    print_table("trained emoji model: 32 x 32 (too small for token merging to save time; look at the pictures)", emoji)
    print(
        "\ns/step is the median without the first step. PSNR and SSIM compare with the baseline: 'baseline, repeated'"
        "\nis what the machine does by itself, 'another seed' what a different image scores."
    )
    print(f"\nOptimization Report of the last optimised run ({name}):\n{rows[1].report}")
    for file, table, cell in (("checkpoint.png", rows, 320), ("emoji.png", emoji, 160)):
        print(f"\nwrote {save_picture(file, table, cell).relative_to(ROOT)}", end="")
    print()


if __name__ == "__main__":
    main()
