"""What a user would put in the place of our nodes: do pictures stay right when a workflow changes, and how near?

    python benchmarks/peers.py [--quick] [--json PATH] [--threads N] [--only PART] [--pairs N] [--kjnodes FOLDER]

changes: changes of a workflow in one session, on a small UNet with random weights. What compiles is held against the
plain model with the same change (the backend is ``eager``: it compiles and checks the same graphs, and only leaves out
the code generation). What changes pictures is held against itself, put on a new model that has the change already.
large: what merges or thins tokens, on the icon model for 64 x 64 latents, which has as many tokens as Stable Diffusion
1.5: distance, operations, and the plain model with as many of these: with fewer steps, and without late levels; few:
likewise, in 8 steps. With ``--json`` a plot is drawn beside these two files. int8, transformer, video: Quantize int8 on
the icon model, on a small transformer of today's form and on one of videos, whose layers are too small to gain: int8
counts as twice as quick, so that the choice is by error and by kind of layer alone. All captions were held out from the
training and from all choices.
``--kjnodes`` adds a node of https://github.com/kijai/ComfyUI-KJNodes from a folder outside of this repository.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from compile import sample
from pages.plots import plot
from shared import trained
from shared.controls import add_pairs, held_out, others
from shared.distances import NOTES, Curve, over, quality
from shared.measuring import arguments, relative_error
from shared.nodes import Apply, core_cache, core_compile, core_tome, node, reused, tome
from shared.record import ROOT, Row, collected, write
from shared.roof import operations
from shared.trained import ICONS, ICONS_64, SOLVERS, Bench, Solver, Witness
from step_caches import plain, row

sys.path.insert(0, str(ROOT / "tests"))
from comfy_host import checkpoints, in_process  # noqa: E402

SIDE = 16
TOME, INT8 = "Apply ToMe", "Quantize int8"
CACHES = ("ComfyUI EasyCache", "ComfyUI LazyCache", "Reuse Steps")
REPEATED = {TOME: (TOME,), "ComfyUI TomePatchModel": (TOME,)} | {cache: ("EasyCache",) for cache in CACHES}
"""Changes that do the same again: merging what is merged, skipping what is skipped."""
CHANGES_NOTES = {
    "wrong images": "farther than 0.0001 (relative L2 distance of the latents) from the picture that should come out",
    "relative error": "the largest of these distances",
    "graphs, recompiles": "of all changes together",
    "seconds": "of the main process, of all images together",
    "seconds each": "of the main process for each image, traced and not made into code, in the order of the changes",
}
PICTURES_NOTES = {key: NOTES[key] for key in ("psnr", "psnr_tenth", "share", "gain_late")} | {
    "work left": "operations of all matrix products and convolutions, as a share of the plain model's",
    "gain": "dB nearer than the curve of fewer steps with as many operations, of the means; *gain worst* of the worst "
    "pairs; below 0 fewer steps are nearer",
    "fewer_nearer": "share of the pairs to which fewer steps are nearer with as many operations",
}


def quantized(**settings: Any) -> Apply:
    """Return what puts each layer of a model into int8 that may be, as if all of them were quicker."""
    from paceline.optimizers.quantization.layer_times import Timing, Timings

    def apply(patcher: Any) -> Any:
        with patch.object(Timings, "time", lambda *_: Timing(2.0, 1.0)):
            return node("PacelineQuantizeInt8", **settings)(patcher)

    return apply


PRESETS = {f"{TOME}, quality": tome(preset="quality"), "ComfyUI TomePatchModel 0.5": core_tome(0.5)}
IN_INT8 = {f"{INT8}, {name}": quantized(preset=name) for name in ("balanced", "quality", "speed")}
IN_INT8 |= {f"{INT8}, weight_only": quantized(mode="weight_only")}
FLOW, OF_FLOW = Solver("euler", "simple", 20), (13, 15, 17, 18, 19)
PICTURES: dict[str, tuple[Witness, Solver, tuple[int, ...], Mapping[str, Apply]]] = {
    "large": (ICONS_64, SOLVERS[0], (13, 15, 17, 18), PRESETS),
    "few": (ICONS_64, Solver("euler", "normal", 8), (5, 6, 7), PRESETS),
    "int8": (ICONS, SOLVERS[0], (13, 15, 17, 18), IN_INT8),
    "transformer": (trained.ICONS_LUMINA, FLOW, OF_FLOW, IN_INT8),
    "video": (trained.ICONS_VIDEO, FLOW, OF_FLOW, IN_INT8),
}
"""Parts: whose pictures, how they are drawn, how many steps or levels of the plain model are left, and what is tried.

Those of int8 are run only if they are asked for.
"""


def kjnodes(folder: Path) -> ModuleType:
    """Return the nodes for speed of KJNodes."""
    spec = importlib.util.spec_from_file_location("kjnodes", folder / "nodes" / "model_optimization_nodes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compilers(folder: Path | None) -> dict[str, Apply]:
    """Return what compiles a model, by name."""
    found = {"ComfyUI TorchCompileModel": core_compile("eager")}
    if folder is not None:
        advanced = kjnodes(folder).TorchCompileModelAdvanced()
        inputs = {name: one[1]["default"] for name, one in advanced.INPUT_TYPES()["required"].items() if len(one) > 1}
        found["KJNodes TorchCompileModelAdvanced"] = lambda patcher: advanced.patch(
            patcher, **(inputs | {"backend": "eager"})
        )[0]
    return found | {"Compile UNet": node("PacelineCompileUNet", backend="eager", mode="default")}


def lossy() -> dict[str, Apply]:
    """Return what changes pictures a little, by name."""
    return {
        "ComfyUI TomePatchModel": core_tome(0.5),
        TOME: tome(method="merge"),
        "ComfyUI EasyCache": core_cache("EasyCache", 0.4),
        "ComfyUI LazyCache": core_cache("LazyCache", 0.2),
        "Reuse Steps": reused(0.15),
    }


def core_node(module: str, name: str, **inputs: Any) -> Any:
    """Return what a node of ComfyUI makes of a MODEL."""
    return getattr(importlib.import_module(module), name).execute(**inputs).args[0]


def script(base: Any) -> list[tuple[str, Apply, dict[str, Any]]]:
    """Return the changes in their order: what they are called, what they do to the MODEL and to sampling."""
    import model_changes as changes

    def same(patcher: Any) -> Any:
        return patcher

    prompt = partial(in_process.random_conditioning, base)
    control = changes.controlnet(SimpleNamespace(model=base, positive=prompt(seed=1)))["positive"]
    # On both passes, as ComfyUI's Apply ControlNet does.
    given = {key: value for key, value in control[0][1].items() if key.startswith("control")}
    negative = [[text, {**details, **given}] for text, details in prompt(seed=2)]
    weak, strong = (partial(changes.lora_for, strength=strength) for strength in (0.4, 1.0))
    freeu, cache, image = (
        partial(change, None, core_node) for change in (changes.freeu, changes.easycache, changes.image_prompt)
    )
    return [
        ("first image", same, {}),
        ("the same again", same, {}),
        ("another prompt", same, {"conditioning": prompt(77, seed=5)}),
        ("a long prompt", same, {"conditioning": prompt(231, seed=6)}),
        ("a LoRA", strong, {}),
        ("the LoRA weaker", weak, {}),
        ("no LoRA", same, {}),
        (TOME, tome(method="kv_downsample", ratio=0.75), {}),
        ("no Apply ToMe", same, {}),
        ("FreeU", freeu, {}),
        ("an image prompt", image, {}),
        ("EasyCache", cache, {}),
        ("none of these", same, {}),
        ("a ControlNet", same, {"conditioning": control, "negative": negative}),
        ("no ControlNet", same, {}),
        ("portrait", same, {"size": (SIDE + 8, SIDE)}),
        ("landscape", same, {"size": (SIDE, SIDE + 8)}),
        ("two images at once", same, {"batch": 2}),
        ("a second sampler", same, {"sampler": "dpmpp_2m", "denoise": 0.6}),
    ]


def measure_changes(folder: Path | None) -> Iterator[dict[str, Any]]:
    """Make the changes in one session with each node, and count."""
    from torch._dynamo.utils import counters

    in_process.bootstrap(cpu=not torch.cuda.is_available())
    small = partial(checkpoints.tiny_sd15, width=32, context=48)
    compiling = compilers(folder)
    for name, apply in {**compiling, **lossy()}.items():
        torch._dynamo.reset()
        counters.clear()
        base, steps = small(), 4 if name in compiling else 10  # caches need some to leave out
        plain, attached = sample(base, SIDE, steps), apply(base)
        errors: dict[str, float] = {}
        seconds: list[float] = []
        for what, change, options in script(base):
            if what in REPEATED.get(name, ()):
                continue
            expected = change(base) if name in compiling else apply(change(small()))
            changed, begun = change(attached), time.process_time()
            found = sample(changed, SIDE, steps, **options)
            seconds.append(round(time.process_time() - begun, 2))
            right = sample(expected, SIDE, steps, **options)
            errors[what] = relative_error(found, right)
            print(f"  {name:36}{what:20}relative error {errors[what]:.2g}", flush=True)
        errors["the plain model after all"] = relative_error(sample(base, SIDE, steps), plain)
        graphs = counters["stats"]["unique_graphs"]
        yield {
            "name": name,
            "work": "changes of a workflow in one session",
            "images": len(errors) - 1,
            "graphs": graphs if name in compiling else None,
            "recompiles": graphs - 1 if name in compiling else None,
            "seconds_each": seconds if name in compiling else None,
            "seconds": round(sum(seconds), 1) if name in compiling else None,
            "wrong_images": [what for what, error in errors.items() if error > 1e-4],
            "relative_error": max(errors.values()),
        }


def pictures(bench: Bench, variants: Mapping[str, Apply], left: tuple[int, ...]) -> Iterator[Row]:
    """Yield how near each variant stays, and the operations that it leaves: see ``PICTURES``."""
    steps, curves = bench.solver.steps, (Curve(), Curve())
    yield from plain(bench, curves, left)
    cost: Callable[[Any], int] = lambda model: operations(lambda: bench.sample(model, *bench.pairs[0], steps))  # noqa: E731
    whole = cost(bench.patcher)
    for name, apply in variants.items():
        numbers, pairs = quality(bench, [one.latent for one in bench.runs(apply)])
        if INT8 not in name:  # whose operations are as many, and others
            part = cost(apply(bench.patcher)) / whole
            at = {"evaluations": part * steps}
            each = pairs | {"evaluations": [part * steps] * len(bench.pairs)}
            numbers |= over(numbers | at, each, *curves) | {"work_left": part}
        yield row(bench, name, numbers, pairs)
    yield from (Row(name, bench.work, quality=numbers) for name, numbers in others(bench))


def main() -> None:
    """Run the parts that were asked for."""
    options = arguments(__doc__.splitlines()[0], only=("changes", *PICTURES), more=_more)
    rows: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    if options.only in (None, "changes"):
        rows += measure_changes(options.kjnodes)
        notes |= CHANGES_NOTES
    for part, (witness, solver, fewer, tried) in PICTURES.items():
        if options.only != part and (options.only or tried is not PRESETS):
            continue
        bench = Bench(witness, solver)
        bench.pairs = held_out(bench, 4 if options.quick else options.pairs)
        rows += map(vars, collected(pictures(bench, tried, fewer)))
        notes |= PICTURES_NOTES | {witness.name: trained.about_weights(witness)}
    if options.json is not None:
        write(options.json, rows, "the plain model from the same seed", notes)
        if options.only in ("large", "few"):
            plot(rows, options.json.with_suffix(".png"))


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kjnodes", type=Path, metavar="FOLDER", help="a clone of ComfyUI-KJNodes")
    add_pairs(parser)


if __name__ == "__main__":
    main()
