"""What the techniques cost Python in each step: time in which a fast GPU waits for work.

A GPU that is quicker than the program that feeds it waits. So it counts what a technique adds to the processor's time
for one call of the network, whatever it saves on the device. Here the real SD1.5 and SDXL structures run at full depth,
but with 32 channels and a tiny latent: next to nothing is computed, and what remains is Python and the dispatching of
operators, one for each kernel that a GPU would be given. Each round runs the plain network and every variant once, in
turn; a row has the median of the processor time, and how much more that is than the plain network's. The calls of
Python functions are counted too: that number does not depend on how busy the machine is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from shared.measuring import arguments, measure
from shared.record import Row, report
from shared.stack_variants import Nodes, Variant, with_nodes
from shared.unets import unet

PLAIN = "none"
WIDTH = 32


def tome(method: str, levels: str) -> tuple[str, dict[str, Any]]:
    ratio = 0.75 if method == "kv_downsample" else 0.5
    return "PacelineApplyToMe", {"preset": "custom", "method": method, "ratio": ratio, "max_downsample": levels}


SDPA = ("PacelineSetAttentionProcessor", {"backend": "sdpa"})
FUSE = ("PacelineFuseQKV", {})
VARIANTS: dict[str, Nodes] = {
    PLAIN: (),
    "none again": (),  # the noise
    "Set Attention sdpa": (SDPA,),
    "Fuse QKV": (FUSE,),
    "Apply ToMe kv_downsample, first level": (tome("kv_downsample", "auto"),),
    "Apply ToMe kv_downsample, all blocks": (tome("kv_downsample", "8"),),
    "Apply ToMe merge, all blocks": (tome("merge", "8"),),
    "Set Attention + Fuse QKV + ToMe kv_downsample, all blocks": (
        SDPA,
        FUSE,
        tome("kv_downsample", "8"),
    ),
}
COMPILED: dict[str, Nodes] = {
    "Compile UNet (eager graphs)": (("PacelineCompileUNet", {"backend": "eager"}),),
}


def step_of(model: Any, side: int) -> Callable[[], Any]:
    """Return one call of a MODEL's network, as the sampler makes it."""
    base = model.model
    config, batch = base.model_config.unet_config, 2

    inputs = {"c_crossattn": torch.randn(batch, 77, config["context_dim"])}
    if base.adm_channels:
        inputs["y"] = torch.randn(batch, base.adm_channels)
    options = {
        **model.model_options["transformer_options"],
        "wrappers": model.wrappers,
        "callbacks": model.callbacks,
        "cond_or_uncond": [0, 1],
        "sample_sigmas": torch.linspace(14, 0, 31),
    }
    latent, sigmas = torch.randn(batch, 4, side, side), torch.full((batch,), 5.0)
    return lambda: base.apply_model(latent, sigmas, transformer_options=options, **inputs)


def measured(layout: str, side: int, variants: dict[str, Nodes], rounds: int) -> list[Row]:
    """Return a row for each variant of one layout."""
    model = unet(layout, WIDTH)
    steps = {name: step_of(with_nodes(model, Variant(name, nodes), "eager"), side) for name, nodes in variants.items()}
    work = f"host time of one call: {layout}, full depth, {WIDTH} channels, latent {side}x{side}, batch 2"
    rows = measure(work, steps, PLAIN, rounds=rounds, warmups=0)
    calls = {name: python_calls(step) for name, step in steps.items()}
    plain = next(row.cpu_seconds_median for row in rows if row.name == PLAIN)
    for row in rows:
        extra = row.cpu_seconds_median - plain
        shares = {"extra_ms": 1000 * extra, "share_of_plain": extra / plain}
        row.quality = shares | {"extra_calls": calls[row.name] - calls[PLAIN]}
    return rows


def python_calls(step: Callable[[], Any]) -> int:
    """Return how many Python functions one call of ``step`` enters: the same however busy the machine is."""
    entered = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return entered


def main() -> None:
    """Measure both layouts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("sd15", "sdxl"))
    torch.set_num_threads(1)
    rounds = 5 if options.quick else 25
    rows: list[Row] = []
    with torch.inference_mode():
        for key, layout, side in (("sd15", "SD1.5", 16), ("sdxl", "SDXL", 16)):
            if options.only not in (None, key):
                continue
            rows += measured(layout, side, VARIANTS if options.quick else VARIANTS | COMPILED, rounds)
            print(f"measured {layout}", file=sys.stderr, flush=True)
    notes = {
        "extra_ms": "processor time above the plain network's, in milliseconds a step; below zero: less than without",
        "share_of_plain": "the same as a share of the plain network's own host time, which a GPU's driver adds to",
        "extra_calls": "Python functions that a step enters above the plain network's; the same on any machine",
    }
    report(rows, PLAIN, options.json, notes)


if __name__ == "__main__":
    main()
