"""The first compiled image of whole networks, narrow on a processor: what ways to compile cost.

    python benchmarks/compile.py [--quick] [--json PATH] [--threads N] [--only MODEL] [--backend NAME]
                                 [--variants NAME ...]

Seconds to the first image, cold and kept by an earlier process, of our node and of what a user would put in its place,
in one run: ComfyUI's TorchCompileModel, KJNodes' nodes for blocks (by what they set, with ComfyUI's own function), and
diffusers' ``compile_repeated_blocks`` on its own networks, where one is built here. Each in a process of its own, which
has drawn the same image without compiling before. Seconds of the main process are Python's: tracing, generating code,
guards; C++ and Triton compile in other processes. On a GPU the networks are of full size, and whole_model and
repeated_blocks stand side by side. How all bear changes of a workflow is in peers.py; what a step gains, in stacks.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from shared.measuring import arguments, relative_error
from shared.nodes import Apply, core_compile, node
from shared.record import Row, collected, kept, report

# isort: split
from comfy_host import checkpoints, in_process, transformers
from comfy_host.pack import load_nodes
from shared.stack_variants import LARGE
from shared.unets import unet

DEEP: dict[str, dict[str, Any]] = {
    "z_image": {"n_layers": 30, "n_refiner_layers": 2},
    "flux": {"depth": 19, "depth_single_blocks": 38},
    "qwen_image": {"num_layers": 60},
    "wan": {"num_layers": 40},
}
"""Blocks of Z-Image, FLUX.1, Qwen-Image and Wan 14B."""
MODELS = ("sdxl", *DEEP)
OURS, LORA, PATCHED, TOME, WHOLE, CORE, KJNODES, DIFFUSERS = (
    "Compile UNet",
    "Compile UNet, with a LoRA",
    "Compile UNet, patched blocks",
    "Compile UNet, Apply ToMe",
    "Compile UNet, whole_model",
    "ComfyUI's TorchCompileModel",
    "KJNodes, blocks only",
    "diffusers, compile_repeated_blocks",
)
KJNODES_LISTS = ("double_blocks", "single_blocks", "layers", "transformer_blocks", "blocks")
"""Lists of blocks that KJNodes' nodes compile, each block for itself; of a UNet, which has none, the whole."""
NOTES = {
    "first image": "model in memory and an image drawn without compiling; from the node on, with torch's imports; "
    "time: by the clock, processor time: of the main process; kept: compiled by an earlier process",
    "graphs": "compiled, in all shapes of calls of one image",
    "relative error": "L2 distance of the latent from the one without compiling",
    "step": "seconds of a step of the image after, by the clock",
}


def lora(patcher: Any) -> Any:
    """Return a MODEL with other weights in two of its linear layers."""
    clone = patcher.clone()
    layers = [(name, part) for name, part in patcher.model.named_modules() if isinstance(part, torch.nn.Linear)]
    for name, layer in layers[len(layers) // 2 :][:2]:
        clone.add_patches({f"{name}.weight": ("diff", (torch.full_like(layer.weight, 1e-3),))}, 1.0)
    return clone


def patched(patcher: Any) -> Any:
    """Return a MODEL with a patch of another node on the self-attention of all blocks of a UNet."""
    clone = patcher.clone()
    clone.set_model_attn1_output_patch(lambda out, options: out * (1 + 0.01 * options["block"][1]))
    return clone


def kjnodes(backend: str) -> Apply:
    """Return what KJNodes' nodes do to a MODEL with their defaults."""

    def apply(patcher: Any) -> Any:
        from comfy_api.torch_helpers import set_torch_compile_wrapper

        torch._dynamo.config.cache_size_limit = 64
        clone, network = patcher.clone(), patcher.model.diffusion_model
        lists = [(name, getattr(network, name)) for name in KJNODES_LISTS if hasattr(network, name)]
        keys = [f"diffusion_model.{name}.{number}" for name, blocks in lists for number in range(len(blocks))]
        how = {"backend": backend, "mode": "default", "dynamic": False, "fullgraph": False}
        set_torch_compile_wrapper(model=clone, keys=keys or ["diffusion_model"], **how)
        return clone

    return apply


CHANGED: dict[str, Apply] = {LORA: lora, PATCHED: patched, TOME: node("PacelineApplyToMe")}
"""What other nodes have done to the MODEL before; without compiling too."""


def variants(model: str, backend: str) -> dict[str, Apply]:
    """Return what makes a compiled MODEL of a plain one, by name."""
    ours = partial(node, "PacelineCompileUNet", backend=backend)
    changes = [LORA, PATCHED, TOME] if model == "sdxl" else [LORA]
    return {
        OURS: ours(),
        **dict.fromkeys(changes, ours()),
        CORE: core_compile(backend),
        **({} if model == "sdxl" else {KJNODES: kjnodes(backend)}),
        WHOLE: ours(scope="whole_model"),
    }


def sample(patcher: Any, side: int, steps: int, **options: Any) -> torch.Tensor:
    """Sample one image of a UNet with both passes."""
    conditioning = options.pop("conditioning", None) or in_process.random_conditioning(patcher, seed=1)
    size = options.pop("size", (side, side))
    latent = torch.zeros(options.pop("batch", 1), 4, *size)
    negative = options.pop("negative", None) or in_process.random_conditioning(patcher, seed=2)
    return in_process.sample(patcher, conditioning, negative, latent, steps=steps, seed=7, **options)


def in_comfyui(model: str, variant: str, backend: str, quick: bool, steps: int) -> tuple[Any, Any]:
    """Return functions that draw an image, without compiling and compiled."""
    on_gpu = torch.cuda.is_available() and not quick
    in_process.bootstrap(cpu=not on_gpu)
    if model == "sdxl":
        plain = checkpoints.smallest_unet() if quick else unet("SDXL", width=320 if on_gpu else 64)
        draw: Callable[[Any], torch.Tensor] = lambda patcher: sample(patcher, 128 if on_gpu else 16, steps)  # noqa: E731
    else:
        sizes = {} if quick else LARGE.get(model, DEEP[model]) if on_gpu else DEEP[model]
        dtype = torch.bfloat16 if on_gpu else torch.float32
        plain = transformers.build(model, dtype=dtype, device="cuda" if on_gpu else "cpu", **sizes)
        texts = [transformers.conditioning(model, seed=seed) for seed in (1, 2)]
        latent = transformers.latent(model, *(128, 128) if on_gpu else (16, 16))
        draw = lambda patcher: in_process.sample(patcher, *texts, latent, steps=steps, seed=7)  # noqa: E731
    changed = CHANGED[variant](plain) if variant in CHANGED else plain
    # The clock runs while the node is applied: others' nodes import the compiler then.
    compiled = cache(partial(variants(model, backend)[variant], changed))
    return partial(draw, changed), lambda: draw(compiled())


def in_diffusers(model: str, backend: str, quick: bool, steps: int) -> tuple[Any, Any]:
    """Return functions that call one of diffusers' networks, without compiling and compiled."""
    import diffusers

    torch.manual_seed(0)
    if model == "sdxl":
        width, depth = (32, [1, 1, 1]) if quick else (64, [1, 2, 10])
        network = diffusers.UNet2DConditionModel(
            sample_size=16,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(width, 2 * width, 4 * width),
            transformer_layers_per_block=depth,
            attention_head_dim=[1, 2, 4],
            cross_attention_dim=512,
            use_linear_projection=True,
        )
        call = partial(network, torch.randn(2, 4, 16, 16), 500, torch.randn(2, 77, 512))
    else:
        depths = {} if quick else DEEP[model]
        network = diffusers.ZImageTransformer2DModel(
            dim=256, n_heads=16, n_kv_heads=16, cap_feat_dim=32, axes_dims=[4, 6, 6], axes_lens=[1024, 128, 128],
            **{"n_layers": 2, "n_refiner_layers": 1, **depths},
        )  # fmt: skip
        for token in (network.x_pad_token, network.cap_pad_token):
            torch.nn.init.normal_(token)
        call = partial(network, [torch.randn(16, 1, 16, 16)] * 2, torch.full((2,), 0.5), [torch.randn(20, 32)] * 2)
    network.eval().requires_grad_(False)

    def draw() -> torch.Tensor:
        for _ in range(steps):
            found: Any = call(return_dict=False)[0]
        return torch.stack(tuple(found)) if isinstance(found, (list, tuple)) else found

    put = cache(partial(network.compile_repeated_blocks, fullgraph=True, backend=backend))
    return draw, lambda: (put(), draw())[1]


def first_image(model: str, variant: str, user: Path, threads: int, quick: bool, backend: str) -> dict[str, float]:
    """Return what the first image took in this process, and the next."""
    from torch._dynamo.utils import counters

    torch.set_num_threads(threads)
    steps = 8 if torch.cuda.is_available() and not quick else 2
    if variant == DIFFUSERS:
        plain, compiled = in_diffusers(model, backend, quick, steps)
    else:
        in_process.bootstrap(cpu=quick or not torch.cuda.is_available())
        import folder_paths

        folder_paths.set_user_directory(str(user))  # in which Compile UNet keeps compiled code
        load_nodes()  # as ComfyUI does at its start
        plain, compiled = in_comfyui(model, variant, backend, quick, steps)
    expected, taken = plain(), []
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        drawn = compiled()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        "wall": taken[0][0],
        "cpu": taken[0][1],
        "graphs": float(counters["stats"]["unique_graphs"]),
        "relative_error": relative_error(drawn.float().cpu(), expected.float().cpu()),
        "step": statistics.median(wall for wall, _ in taken[1:]) / steps,
    }


def measure(model: str, folder: Path, quick: bool, backend: str, wanted: Sequence[str]) -> Iterator[Row]:
    """Run each wanted variant, or all, twice: in a process each, with one folder for what both keep."""
    built = model in ("sdxl", "z_image") and (quick or not torch.cuda.is_available())
    work = f"first image, {model}"
    done = kept(work)
    names = list(variants(model, backend))
    names[1:1] = [DIFFUSERS] * built  # behind ours: it takes as little, and what takes minutes comes last
    for name in names:
        if f"{name}, kept" in done or (wanted and name not in wanted):
            continue
        place = folder / name.replace(" ", "_").replace("'", "")
        place.mkdir()
        for number, which in enumerate(("cold", "kept")):
            with (
                patch.dict(os.environ, TMPDIR=str(place)),
                ProcessPoolExecutor(1, get_context("spawn")) as process,
            ):
                os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
                given = (model, name, place / "user", torch.get_num_threads(), quick, backend)
                found = process.submit(first_image, *given).result()
            wall, cpu = found.pop("wall"), found.pop("cpu")
            if number:
                found.pop("graphs")
            yield Row(f"{name}, {which}", work, wall, cpu_seconds_median=cpu, quality=found, rounds=1)


def main() -> None:
    """Measure all of them."""
    options = arguments(__doc__.splitlines()[0], only=MODELS, more=_more)
    rows: list[Row] = []
    for model in (options.only,) if options.only else MODELS:
        with tempfile.TemporaryDirectory() as name:
            rows += collected(measure(model, Path(name), options.quick, options.backend, options.variants))
    report(rows, "the same image without compiling", options.json, NOTES)


def _more(parser: argparse.ArgumentParser) -> None:
    every = (OURS, LORA, PATCHED, TOME, WHOLE, CORE, KJNODES, DIFFUSERS)
    parser.add_argument("--backend", default="inductor", metavar="NAME")
    parser.add_argument("--variants", nargs="+", choices=every, default=(), metavar="NAME", help="instead of all")


if __name__ == "__main__":
    main()
