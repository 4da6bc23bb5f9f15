"""Compile VAE and Compile ControlNet against the same objects without the nodes.

    python benchmarks/compile_vae.py [--quick] [--only vae|controlnet] [--json PATH] [--threads N]

Real sizes: the VAE of SD 1.5 and a ControlNet of SD 1.5, with random weights. With --quick, and on a CPU, small images,
and a ControlNet of half the width. ``first call`` is the time of the first image or step, compiling included.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from typing import Any

import torch
from common import Variant, arguments, measure, relative_error, wait
from record import ROOT, Row, report

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import in_process, pack, vaes  # noqa: E402
from comfy_host.checkpoints import SD15_CONFIG, tiny_sd15  # noqa: E402
from comfy_host.weights import fill  # noqa: E402

EAGER = "without the node"
VARIANTS: dict[str, dict[str, Any]] = {
    "compiled": {},
    "compiled, channels_last": {"channels_last": True},
}
SD15_BLOCKS = {
    "num_res_blocks": [2, 2, 2, 2],
    "channel_mult": [1, 2, 4, 4],
    "transformer_depth": [1, 1, 1, 1, 1, 1, 0, 0],
}


def first_call(function: Variant) -> tuple[Any, float]:
    """Return what ``function`` returns and the seconds it takes the first time."""
    started = time.perf_counter()
    result = function()
    wait()
    return result, time.perf_counter() - started


def compare(work: str, functions: dict[str, Variant], rounds: int) -> list[Row]:
    """Measure ``functions`` with their first calls and their differences from the first of them."""
    quality: dict[str, dict[str, float]] = {}
    reference: torch.Tensor | None = None
    for name, function in functions.items():
        result, seconds = first_call(function)
        reference = result if reference is None else reference
        quality[name] = {"first call": seconds, "relative error": relative_error(result, reference)}
    return measure(work, functions, EAGER, rounds=rounds, warmups=1, quality=quality)


def vae_rows(nodes: Any, side: int, rounds: int) -> list[Row]:
    """Measure decoding and encoding of square images of ``8 * side`` pixels."""
    vae = vaes.sd15()
    latent = torch.randn(1, 4, side, side, generator=torch.Generator().manual_seed(0))
    image = torch.rand(1, 8 * side, 8 * side, 3, generator=torch.Generator().manual_seed(0))
    node = nodes["PacelineCompileVAE"]
    made = {
        name: node.execute(vae=vae, compile_decoder=True, compile_encoder=True, **settings).result[0]
        for name, settings in VARIANTS.items()
    }
    candidates = {EAGER: vae, **made}
    rows = []
    for method, value in (("decode", latent), ("encode", image)):
        functions = {name: partial(getattr(one, method), value) for name, one in candidates.items()}
        rows += compare(f"VAE of SD 1.5, {method}, {8 * side} px, {vae.vae_dtype}", functions, rounds)
    return rows


def controlnet_rows(nodes: Any, side: int, width: int, rounds: int) -> list[Row]:
    """Measure one step's ControlNet for latents of ``side`` squared, prompt and negative prompt together."""
    import comfy.cldm.cldm
    import comfy.controlnet
    import comfy.model_management
    import comfy.ops

    device = comfy.model_management.get_torch_device()
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    without = ("out_channels", "transformer_depth_output")
    config = {name: value for name, value in SD15_CONFIG.items() if name not in without}
    network = comfy.cldm.cldm.ControlNet(
        **{**config, **SD15_BLOCKS, "model_channels": width},
        num_heads=8,
        hint_channels=3,
        dtype=dtype,
        device="cpu",
        operations=comfy.ops.disable_weight_init,
    )
    fill(network, 0)
    control_net = comfy.controlnet.ControlNet(network.eval(), load_device=device)
    model = tiny_sd15()
    hint = torch.rand(1, 3, 8 * side, 8 * side, generator=torch.Generator().manual_seed(0))
    x, text = torch.randn(2, 4, side, side).to(device), torch.randn(2, 77, 768).to(device)

    def step(one: Any) -> torch.Tensor:
        control = one.get_control(x, torch.tensor([10.0, 10.0], device=device), {"c_crossattn": text}, 2, {})
        return torch.cat([tensor.flatten() for tensors in control.values() for tensor in tensors if tensor is not None])

    node = nodes["PacelineCompileControlNet"]
    made = {name: node.execute(control_net=control_net, **settings).result[0] for name, settings in VARIANTS.items()}
    functions: dict[str, Variant] = {}
    for name, one in {EAGER: control_net, **made}.items():
        used = one.copy().set_cond_hint(hint, 1.0, (0.0, 1.0))
        comfy.model_management.load_models_gpu(used.get_models())
        used.pre_run(model.model, lambda percent: 1000.0 * (1.0 - percent))
        functions[name] = partial(step, used)
    parameters = sum(weight.numel() for weight in network.parameters()) / 1e6
    work = f"ControlNet of SD 1.5, {parameters:.0f} M parameters, one step, {8 * side} px, batch 2, {dtype}"
    return compare(work, functions, rounds)


def main() -> None:
    """Measure both."""
    options = arguments(__doc__.splitlines()[0], only=("vae", "controlnet"))
    in_process.bootstrap(cpu=False)
    pack.load_pack()
    nodes = pack.load_nodes()
    small = options.quick or not torch.cuda.is_available()
    rows: list[Row] = []
    # A cache of an earlier run would hide what compiling costs.
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        rounds = 5 if small else 15
        if options.only in (None, "vae"):
            rows += vae_rows(nodes, 20 if small else 128, rounds)
        if options.only in (None, "controlnet"):
            rows += controlnet_rows(nodes, 32 if small else 128, 160 if small else 320, rounds)
    report(rows, EAGER, options.json)


if __name__ == "__main__":
    main()
