"""Write docs/expected.md: the seconds that known models should take on five cards, and what measurements said of it.

    python benchmarks/pages/expected.py

From results/expected_work.json (operations, bytes and kernels of a step, counted), from published speeds of the cards
and from published shares of these that programs reach. The same files give the same bytes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
PAGE = FOLDER.parent / "docs" / "expected.md"
TEMPLATE = Path(__file__).with_name("expected_template.md")
Span = tuple[float, float]
"""Seconds at the least and at the most."""

MEMORY: Span = (0.7, 0.9)
"""Share of the published bandwidth that kernels reach."""
COMFYUI: Span = (58e-6, 90e-6)
"""Seconds that a processor needs for a kernel of ComfyUI, with what it does for each layer: our records, rounded."""
DIFFUSERS: Span = (30e-6, 47e-6)
"""Likewise in diffusers: what others published."""
COMPILED: Span = (22e-6, 35e-6)
"""Likewise from generated code, in both."""
DECODING: dict[bool, float] = {False: 3.4, True: 1.5}
"""How many times as long as reckoned an H100 decodes, plain and compiled: taken for all cards."""
BUS: Span = (12e9, 25e9)
"""Bytes a second from main memory to the card, for weights that do not fit."""
FREE = 2e9
"""Bytes of the card's memory that weights cannot have."""


@dataclass(frozen=True)
class Card:
    """Published: dense fp16/bf16 operations and bytes a second, bytes of memory; shares of the operations reached."""

    operations: float
    bandwidth: float
    memory: float
    products: Span
    attention: Span = (0.52, 0.73)


CARDS = {
    "RTX 3060": Card(25.5e12, 360e9, 12e9, (0.62, 0.86)),
    "RTX 4090": Card(165.2e12, 1008e9, 24e9, (0.62, 0.86)),
    "RTX 5090": Card(209.5e12, 1792e9, 32e9, (0.62, 0.86)),
    "A100": Card(312e12, 2039e9, 80e9, (0.54, 0.76)),
    "H100": Card(989.4e12, 3350e9, 80e9, (0.45, 0.64), (0.45, 0.65)),
    "H200": Card(989.4e12, 4800e9, 141e9, (0.45, 0.64), (0.45, 0.65)),
}
WORK = {
    "SDXL": ("SDXL, 1024 x 1024", 30, "30 steps, cfg 7"),
    "SD 1.5": ("SD 1.5, 512 x 512", 30, "30 steps, cfg 7, batch 1"),
    "Z-Image": ("Z-Image, 1024 x 1024", 8, "8 steps, cfg 1"),
    "Flux": ("Flux.1 dev, 1024 x 1024", 28, "28 steps, cfg 1, bf16"),
    "VAE": ("decoding with SDXL's VAE, 1024 x 1024", 1, "one picture, bf16"),
}
"""Name of what was counted, how often, and in words."""
_ICONS = "step_caches_late_euler_cpu: icons, euler, normal, 30 steps, guidance 3, 32 pairs"
REUSED = {
    "SDXL": _ICONS,
    "SD 1.5": _ICONS,
    "Flux": "step_caches_lumina_cpu: icons, Lumina, euler, simple, 25 steps",
    "Z-Image": "step_caches_few_icons_cpu: icons, euler, normal, 8 steps, guidance 3",
}
"""The measurement of which Reuse Steps with a budget of 0.05 has its share of evaluations."""
OURS = [
    ("H100", "gpu_compile_sdxl", "ComfyUI as it comes", ["SDXL plain"]),
    ("H100", "gpu_compile_sdxl", "Compile UNet", ["SDXL compiled"]),
    ("H100", "gpu_compile_sdxl", "ComfyUI's TorchCompileModel", ["SDXL compiled"]),
    ("H100", "gpu_recipe_sdxl", "ComfyUI as it comes", ["SDXL plain", "VAE plain"]),
    ("H100", "gpu_recipe_sdxl", "Compile UNet", ["SDXL compiled", "VAE plain"]),
    ("H200", "gpu_recipe_sdxl_h200", "ComfyUI as it comes", ["SDXL plain", "VAE plain"]),
    ("H200", "gpu_recipe_sdxl_h200", "+ Compile UNet and VAE", ["SDXL compiled", "VAE compiled"]),
    ("H200", "gpu_recipe_sd15_batch1", "ComfyUI as it comes", ["SD 1.5 plain"]),
    ("H200", "gpu_recipe_sd15_batch1", "+ Compile UNet and VAE", ["SD 1.5 compiled"]),
    ("H100", "gpu_z_image", "ComfyUI as it comes", ["Z-Image plain", "VAE plain"]),
    ("H100", "gpu_vae_sdxl", "ComfyUI as it comes", ["VAE plain"]),
    ("H100", "gpu_vae_sdxl", "Compile VAE", ["VAE compiled"]),
]
"""Cards, files of results from them, their rows, and what is estimated for them."""
FAST = "[diffusion-fast](https://pytorch.org/blog/accelerating-generative-ai-3/)"
FAL = "[fal.ai](https://github.com/fal-ai/stable-diffusion-benchmarks)"
HUB = "[diffusers](https://huggingface.co/docs/diffusers/v0.24.0/en/optimization/torch2.0)"
TORCHAO = "[diffusers-torchao](https://github.com/sayakpaul/diffusers-torchao)"
PARA = "[ParaAttention](https://github.com/chengzeyi/ParaAttention)"
OTHERS = [
    ("A100", f"{FAST}, SDPA, not compiled", 3.31, ["SDXL plain", "VAE plain"]),
    ("A100", f"{FAST}, compiled UNet and VAE", 2.54, ["SDXL compiled", "VAE compiled"]),
    ("A100", f"{FAL}, 31.2 it/s", 30 / 31.2, ["SD 1.5 plain"]),
    ("A100", f"{FAL}, 36.9 it/s compiled", 30 / 36.9, ["SD 1.5 compiled"]),
    ("RTX 4090", f"{HUB}, 40.5 it/s", 30 / 40.5, ["SD 1.5 plain"]),
    ("RTX 4090", f"{HUB}, 49.81 it/s compiled", 30 / 49.81, ["SD 1.5 compiled"]),
    ("RTX 4090", f"{HUB}, 8.18 it/s", 30 / 8.18, ["SDXL plain"]),
    ("H100", f"{TORCHAO}, bf16", 6.57, ["Flux plain", "VAE plain"]),
    ("H100", f"{TORCHAO}, bf16, compiled", 4.21, ["Flux compiled", "VAE plain"]),
    ("A100", f"{PARA}, bf16", 13.84, ["Flux plain", "VAE plain"]),
    ("A100", f"{PARA}, bf16, compiled", 9.997, ["Flux compiled", "VAE plain"]),
]
"""Published by others with diffusers: card, where and what, seconds, and what is estimated for them."""


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of results."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "results" / f"{name}.json").read_text("utf-8"))["rows"]
    return found


def row(name: str, variant: str, work: str = "") -> dict[str, Any]:
    """Return the row of a variant in a file of results."""
    for one in rows(name):
        if one["name"] == variant and one["work"].startswith(work):
            return one
    raise KeyError(f"results/{name}.json has no row {variant!r} of a work that begins with {work!r}")


COUNTED = {one["work"]: one["quality"] for one in rows("expected_work")}


def step(card: Card, work: str, compiled: bool = False, eager: Span = COMFYUI) -> Span | None:
    """Return the seconds of one step, or None where ours does not compile because the weights do not fit.

    ``eager``: what a kernel costs the processor where nothing is compiled.
    """
    found = COUNTED[work]
    fused = found["product_bytes"] - found["weight_bytes"]  # what all else hands to products and takes from them
    other, kernels = (fused, 2 * found["large_kernels"]) if compiled else (found["other_bytes"], found["kernels"])
    lacking = max(0.0, found["weight_bytes"] - (card.memory - FREE))
    if compiled and lacking:
        return None

    def took(fast: bool) -> tuple[float, float, float]:
        """Return for how many seconds the card, the processor and the bus are busy."""
        products = found["products"] / card.operations / card.products[fast]
        attention = found["attention"] / card.operations / card.attention[fast]
        moved = (other + (0 if fast else found["product_bytes"])) / card.bandwidth / MEMORY[fast]
        busy = (products + attention + moved) * (DECODING[compiled] if work.startswith("decoding") else 1)
        return busy, kernels * (COMPILED if compiled else eager)[not fast], lacking / BUS[fast]

    busy, host, bus = took(fast=False)
    return max(took(fast=True)), max(busy + bus, host)


def seconds(card: Card, what: str, compiled: bool = False, reused: bool = False, eager: Span = COMFYUI) -> Span | None:
    """Return the expected seconds of all steps of an entry of ``WORK``."""
    work, steps, _ = WORK[what]
    one = step(card, work, compiled, eager)
    if one is None or (reused and what not in REUSED):
        return None
    computed = steps * (evaluations(what) if reused else 1.0)
    return computed * one[0], computed * (one[1] + (waiting() if reused else 0.0))


def evaluations(what: str) -> float:
    """Return the share of evaluations that Reuse Steps with a budget of 0.05 computed where it was measured."""
    name, work = REUSED[what].split(": ")
    found = row(name, "Reuse Steps 0.05", work)["quality"]["evaluations"]
    return float(found) / int(work.partition(" steps")[0].split()[-1])


def waiting() -> float:
    """Return the seconds that Reuse Steps waits for the card in a step, measured where it left out nothing."""
    plain, reused = (row("gpu_reuse_flux", name)["seconds_median"] for name in ("plain model", "budget 0.05"))
    return float(reused - plain) / 30


def shown(span: Span | None) -> str:
    """Return *a to b s* with two digits each, or a dash."""
    return f"{digits(span[0])} to {digits(span[1])} s" if span else "–"


def digits(value: float, count: int = 2) -> str:
    """Return a number with ``count`` digits, never as a power of ten."""
    places = count - 1 - math.floor(math.log10(value))
    return f"{round(value, places):.{max(0, places)}f}"


def range_of(card: str, estimated: list[str], eager: Span) -> Span:
    """Return what was estimated for these parts together."""
    parts = [(part.rpartition(" ")[0], part.endswith("compiled")) for part in estimated]
    low, high = zip(*(seconds(CARDS[card], *part, eager=eager) or (0, 0) for part in parts), strict=True)
    return sum(low), sum(high)


def marked(card: str, measured: float, estimated: list[str], eager: Span) -> str:
    """Return the cells of what was estimated for these parts together, what was measured, and how far that is off."""
    low, high = range_of(card, estimated, eager)
    mark = "inside" if low <= measured <= high else f"**{measured / high:.2f}x slower**"
    mark = f"**{low / measured:.2f}x faster**" if measured < low else mark
    return f"{' + '.join(estimated)} | {shown((low, high))} | {digits(measured, 3)} s | {mark} |"


def page() -> str:
    """Return the whole page."""
    return TEMPLATE.read_text("utf-8").format(
        works="\n".join(map(table, WORK)).rstrip(),
        ours="\n".join(
            f"| {card}, [{name}](../benchmarks/RESULTS.md#{name.replace('_', '-')}), {variant} | "
            + marked(card, row(name, variant)["seconds_median"], estimated, COMFYUI)
            for card, name, variant, estimated in OURS
        ),
        others="\n".join(
            f"| {card}, {source} | {marked(card, found, what, DIFFUSERS)}" for card, source, found, what in OTHERS
        ),
        core=per_kernel(row(*OURS[0][1:3])["seconds_median"], "SDXL"),
        slow=per_kernel(row(*OURS[5][1:3])["seconds_median"], "SDXL"),
        fal=per_kernel(OTHERS[2][2], "SD 1.5"),
        hub=per_kernel(OTHERS[4][2], "SD 1.5"),
        decodes=" and ".join(f"{DECODING[compiled]:g}" for compiled in (False, True)),
        comfyui=micro(COMFYUI),
        diffusers=micro(DIFFUSERS),
        compiled=micro(COMPILED),
        cards="\n".join(map(constants, CARDS)),
        wait=f"{1e3 * waiting():.0f}",
    )


def table(what: str) -> str:
    """Return the section of one entry of ``WORK``."""
    work, _, steps = WORK[what]
    kinds = [(False, False), (True, False), *([(False, True), (True, True)] if what in REUSED else [])]
    names = ["plain", "Compile VAE" if what == "VAE" else "Compile UNet", "Reuse Steps 0.05", "both"][: len(kinds)]
    lines = [f"## {work[0].upper()}{work[1:]}", "", f"{steps[0].upper()}{steps[1:]}. {counted_in_words(work)}", ""]
    lines += ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(kinds)]
    for name, card in CARDS.items():
        lines.append(f"| {name} | " + " | ".join(shown(seconds(card, what, *kind)) for kind in kinds) + " |")
    if what in REUSED:
        share = f"{100 * evaluations(what):.0f} %"
        lines += ["", f"Reuse Steps: {share} of the evaluations, as measured on a small trained model."]
    return "\n".join([*lines, ""])


def counted_in_words(work: str) -> str:
    """Return what was counted of a step."""
    found = COUNTED[work]
    tera, giga = ({name: number / unit for name, number in found.items()} for unit in (1e12, 1e9))
    return (
        f"{'Decoding' if work.startswith('dec') else 'One step'}: {tera['products']:.2f} + {tera['attention']:.2f} "
        f"TFLOP (products + attention), {giga['weight_bytes']:.1f} GB of weights, {giga['product_bytes']:.1f} GB "
        f"through products and {giga['other_bytes']:.1f} GB through all other kernels, {found['kernels']:.0f} kernels."
    )


def per_kernel(measured: float, what: str) -> str:
    """Return the microseconds for each kernel that a measurement of a plain model comes to."""
    work, steps, _ = WORK[what]
    return f"{1e6 * measured / steps / COUNTED[work]['kernels']:.0f}"


def micro(span: Span) -> str:
    """Return *a to b µs*."""
    return f"{1e6 * span[0]:.0f} to {1e6 * span[1]:.0f} µs"


def constants(name: str) -> str:
    """Return the row of a card in the table of what was assumed."""
    card = CARDS[name]
    shares = " | ".join(f"{100 * low:.0f} % to {100 * high:.0f} %" for low, high in (card.products, card.attention))
    speeds = f"{card.operations / 1e12:g} TFLOP/s | {card.memory / 1e9:g} GB, {card.bandwidth / 1e9:g} GB/s"
    return f"| {name} | {speeds} | {shares} |"


def main() -> None:
    """Write it."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    print(f"Written to {PAGE}")


if __name__ == "__main__":
    main()
