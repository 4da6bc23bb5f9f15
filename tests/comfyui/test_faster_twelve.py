"""*Make this workflow faster* on the networks and steps of twelve well-known workflows, with seconds of the test's own.

A block takes a 32nd of a second; on a device on which compiling gains, compiled half of that.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from cases import often
from clock import Clock
from comfy_host import in_process, transformers, vaes
from executing import Executor, node
from faster_prompts import ask, job_of, on_device
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.compiler import repeated_blocks

pytestmark = pytest.mark.slow

WORKFLOWS: dict[str, list[tuple[str, int]]] = {
    "Z-Image Turbo": [("z_image", 8)],
    "Krea 2 Turbo": [("krea2", 8)],
    "Wan 2.2": [("wan", 10), ("wan", 10)],
    "Wan 2.2, turbo": [("wan", 2), ("wan", 2)],
    "LTX-2.3": [("ltx2", 8), ("ltx2", 3)],
    "MiniMax H3": [("minimax_h3", 8)],
    "Flux.2 Klein": [("flux2", 4)],
    "Qwen-Image 2512": [("qwen_image", 20)],
    "SDXL and refiner": [("sdxl", 20), ("sdxl", 5)],
    "icons, 30 steps": [("icons", 30)],
    "icons, 30 steps, small": [("icons small", 30)],
    "icons, 12 steps": [("icons", 12)],
}
"""Network and steps of each sampler, one behind the other."""

DECODED = {"z_image": 16, "sdxl": 4}
"""Channels of the latents that a VAE decodes, by the network."""

REASONS = ("is left out: ", "it is for UNets only", "no gain", "too little", "farther than you chose", "pays only")


@pytest.fixture
def parts(sdxl: Any, icons: Any) -> Any:
    """A function that returns MODEL, conditioning and latent of a network."""

    def of(network: str) -> tuple[Any, Any, torch.Tensor]:
        if network == "sdxl":
            return sdxl, in_process.random_conditioning(sdxl), torch.zeros(1, 4, 16, 16)
        if network.startswith("icons"):
            side = 16 if network.endswith("small") else 32
            return icons[0], icons[1]("red heart flat"), torch.zeros(1, 4, side, side)
        return transformers.build(network), transformers.conditioning(network), transformers.latent(network)

    return of


def workflow(comfyui: Executor, parts: Any, name: str) -> tuple[dict[str, Any], list[Any]]:
    """Return a prompt, and the networks in it."""
    prompt: dict[str, Any] = {}
    networks: list[Any] = []
    last = ""
    for number, (network, steps) in enumerate(WORKFLOWS[name]):
        model, text, latent = parts(network)
        about = {"model": ("MODEL", model), "text": ("CONDITIONING", text), "blank": ("LATENT", {"samples": latent})}
        for what, (type, one) in about.items():
            prompt[f"{what}{number}"] = comfyui.give(type, f"{what}{number} of {name}", one)
        links = {"model": [f"model{number}", 0], "latent_image": [last or "blank0", 0]}
        links |= dict.fromkeys(("positive", "negative"), [f"text{number}", 0])
        how = {"seed": 3, "steps": steps, "cfg": 3.0, "sampler_name": "euler", "scheduler": "simple"}
        prompt[f"sampler{number}"] = node("KSampler", **links, **how, denoise=0.5 if last else 1.0)
        last = f"sampler{number}"
        networks.append(model.model.diffusion_model)
    if network in DECODED:
        vae = vaes.kl(levels=1, channels=DECODED[network])
        prompt["vae"] = comfyui.give("VAE", f"vae of {name}", vae)
        prompt["picture"] = node("VAEDecode", samples=[last, 0], vae=["vae", 0])
        networks.append(vae.first_stage_model.decoder)
        last = "picture"
    return prompt | {"shown": node("PreviewAny", source=[last, 0])}, networks


def compiled_in_half(monkeypatch: Any, clock: Clock) -> None:
    """Let compiling take no time, and what is compiled half of its time, on a device of which presets compile."""

    def run(function: Any, _call: Any, args: Any, kwargs: Any, _untouched: Any) -> Any:
        own, clock.busy = clock.busy, clock.busy / 2
        try:
            return function.function(*args, **kwargs)
        finally:
            clock.busy = own

    monkeypatch.setattr(CompiledFunction, "_run", run)
    on_device(monkeypatch, "cuda", can_compile=True)


DEVICES = {"compiling gains": True, "processor": False}
OFTEN = [("Z-Image Turbo", "compiling gains"), ("LTX-2.3", "compiling gains")]
OFTEN += [("Wan 2.2, turbo", "processor"), ("icons, 12 steps", "processor")]


@pytest.mark.parametrize(("name", "device"), often(OFTEN, product(WORKFLOWS, DEVICES), several=True))
def test_a_click_ends_with_an_offer_that_does_what_it_says_or_with_the_reason(
    comfyui: Executor, parts: Any, user_folder: Any, monkeypatch: Any, name: str, device: str
):
    prompt, networks = workflow(comfyui, parts, name)
    clock = Clock(monkeypatch, *{type(block) for network in networks for block in repeated_blocks(network)})
    clock.busy, compiles = 1 / 32, DEVICES[device]
    if compiles:
        compiled_in_half(monkeypatch, clock)

    def takes(queued: dict[str, Any]) -> float:
        began = clock.now
        comfyui.run(queued)
        return clock.now - began

    state = ask(do="run", prompt=prompt, choice="balanced")
    job = job_of(state)
    plain = takes(state["prompt"])
    decoded = sum(one.seconds for one in job.observer.decodings)
    state = ask(do="next", job=job.id, seconds={"samplingRun": plain - decoded, "decoding": decoded})
    while state["prompt"]:
        comfyui.run(state["prompt"])
        state = ask(do="next", job=job.id)
    offer, (longest, *_) = state["offer"], state["time"]["parts"]
    assert longest["kind"] == "samplingRun" and longest["remedy"]["text"]
    if compiles:
        assert "Compile UNet" in offer["label"] and ("Compile VAE" in offer["label"]) == ("vae" in prompt)
    if offer is None:
        assert any(reason in longest["remedy"]["text"] for reason in REASONS), longest
    else:
        low, likely, _ = job.offer.run_speedup
        gained = plain / takes(ask(do="keep", job=job.id)["prompt"])
        assert likely >= low > 1 and gained > 0.99 * low
