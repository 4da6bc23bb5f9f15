"""What the techniques cost Python in each step: time in which a fast GPU waits for work.

A GPU that is quicker than the program that feeds it waits. So it counts what a technique adds to the processor's time
for one call of the network, whatever it saves on the device. Here the real SD1.5 and SDXL structures run at full depth,
but with 32 channels and a tiny latent: next to nothing is computed, and what remains is Python and the dispatching of
operators, one for each kernel that a GPU would be given. Each round runs the plain network and every variant once, in
turn; a row is the median over the rounds of processor time less that of the plain network in the same round. The calls
of Python functions are counted too: that number does not depend on how busy the machine is.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from shared.measuring import arguments
from shared.record import ROOT, Row, report
from shared.unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.pack import load_nodes  # noqa: E402

PLAIN = "none"
WIDTH = 32
Nodes = list[tuple[str, dict[str, Any]]]


def tome(method: str, levels: str) -> tuple[str, dict[str, Any]]:
    ratio = 0.75 if method == "kv_downsample" else 0.5
    return "PacelineApplyToMe", {"preset": "custom", "method": method, "ratio": ratio, "max_downsample": levels}


SDPA = ("PacelineSetAttentionProcessor", {"backend": "sdpa"})
FUSE = ("PacelineFuseQKV", {})
VARIANTS: dict[str, Nodes] = {
    PLAIN: [],
    "none again": [],  # the noise
    "Set Attention sdpa": [SDPA],
    "Fuse QKV": [FUSE],
    "Apply ToMe kv_downsample, first level": [tome("kv_downsample", "auto")],
    "Apply ToMe kv_downsample, all blocks": [tome("kv_downsample", "8")],
    "Apply ToMe merge, all blocks": [tome("merge", "8")],
    "Set Attention + Fuse QKV + ToMe kv_downsample, all blocks": [SDPA, FUSE, tome("kv_downsample", "8")],
}
COMPILED: dict[str, Nodes] = {
    "Compile UNet (eager graphs)": [("PacelineCompileUNet", {"backend": "eager"})],
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


def measure(layout: str, side: int, variants: dict[str, Nodes], rounds: int) -> list[Row]:
    """Return a row for each variant of one layout."""
    model = unet(layout, WIDTH)
    nodes = load_nodes()
    steps: dict[str, Callable[[], Any]] = {}
    for name, stack in variants.items():
        changed = model
        for node, inputs in stack:
            changed = nodes[node].execute(model=changed, **inputs).result[0]
        steps[name] = step_of(changed, side)
    work = f"host time of one call: {layout}, full depth, {WIDTH} channels, latent {side}x{side}, batch 2"
    for step in steps.values():
        step()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in order:
                taken[name].append(_processor_seconds(steps[name]))
            order = [*order[1:], order[0]]
            gc.collect()
    finally:
        gc.enable()
    calls = {name: python_calls(step) for name, step in steps.items()}
    return [_row(name, work, taken, calls, rounds) for name in steps]


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


def _processor_seconds(step: Callable[[], Any]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _row(name: str, work: str, taken: dict[str, list[float]], calls: dict[str, int], rounds: int) -> Row:
    pairs = list(zip(taken[name], taken[PLAIN], strict=True))
    extra = statistics.median(own - plain for own, plain in pairs)
    plain = statistics.median(taken[PLAIN])
    return Row(
        name=name,
        work=work,
        cpu_seconds_median=statistics.median(taken[name]),
        quality={
            "extra_ms": 1000 * extra,
            "share_of_plain": extra / plain,
            "extra_calls": calls[name] - calls[PLAIN],
        },
        rounds=rounds,
    )


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
            rows += measure(layout, side, VARIANTS if options.quick else VARIANTS | COMPILED, rounds)
            print(f"measured {layout}", file=sys.stderr, flush=True)
    notes = {
        "extra_ms": "processor time above the plain network's, in milliseconds a step; below zero: less than without",
        "share_of_plain": "the same as a share of the plain network's own host time, which a GPU's driver adds to",
        "extra_calls": "Python functions that a step enters above the plain network's; the same on any machine",
    }
    report(rows, PLAIN, options.json, notes)


if __name__ == "__main__":
    main()
