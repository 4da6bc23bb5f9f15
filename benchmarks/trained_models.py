"""Trained models whose pictures change with the tokens that attention gets, and how far they move."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from record import ROOT
from roof import operations
from skimage.metrics import structural_similarity
from torch import Tensor

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "demo" / "emoji_nodes")]
from comfy_host import in_process  # noqa: E402
from terrain import fetch, network  # noqa: E402
from terrain.reducing import Plan, Reducer, Setting  # noqa: E402

EMOJI_WEIGHTS = ROOT / "demo" / "emoji_nodes" / "emoji32.safetensors"
EMOJI_PROMPTS = ("red apple", "pizza", "birthday cake", "fox", "panda", "ladybug", "sunflower", "moon")
STEPS, SAMPLER, SCHEDULER, CFG = 25, "dpmpp_2m", "karras", 2.0


class Terrain:
    """The terrain model: one step from pure noise."""

    name = "terrain"
    channels_and_blocks = {32: (64, 9), 16: (96, 9), 8: (128, 10)}
    steps = 1

    def __init__(self, pictures: int) -> None:
        self.network = network.load(fetch.weights())
        self.seeds = range(pictures)
        self.reference = self.draw()

    def draw(self, setting: Setting | None = None) -> Tensor:
        """Return pictures ``[pictures, 128, 128]``."""
        self.network.set_hook(Reducer(setting).hook if setting else None)
        pictures = network.draw(self.network, self.seeds)
        self.network.set_hook(None)
        return pictures

    def control(self, sides: tuple[int, ...], work_left: float) -> dict[str, float]:
        """Return nothing: one step cannot become fewer."""
        return {}

    def controls(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what the numbers can be held against."""
        # 60 is a multiple of 6: the same difficulties.
        yield "other seed", network.draw(self.network, range(60, 60 + len(self.seeds)))
        yield "bf16", network.draw(network.load(fetch.weights()).bfloat16(), self.seeds)


class Emoji:
    """The demo's emoji model in ComfyUI, many steps with guidance."""

    name = "emoji"
    channels_and_blocks = {32: (32, 3), 16: (64, 3), 8: (64, 4)}
    steps = STEPS

    def __init__(self, pictures: int) -> None:
        in_process.bootstrap()
        import model as emoji

        self.decode = emoji.decode
        self.patcher, encoder = emoji.load(EMOJI_WEIGHTS)
        words = [encoder(text)[0][0] for text in EMOJI_PROMPTS[:pictures]]
        self.positive, self.negative = [[torch.cat(words), {}]], encoder("")
        self.blank = torch.zeros(len(words), 4, 32, 32)
        self.reference = self.draw()
        self._fewer: dict[int, dict[str, float]] = {}
        network = self.patcher.model.diffusion_model
        with torch.inference_mode():
            self._operations = operations(lambda: network(self.blank[:1], torch.zeros(1), context=words[0]))

    def draw(self, setting: Setting | None = None) -> Tensor:
        """Return pictures ``[pictures, 32, 32, 3]``."""
        return self.sample(self.patcher if setting is None else reduced(self.patcher, setting))

    def sample(self, patcher: Any, seed: int = 0, steps: int = STEPS) -> Tensor:
        """Return what a MODEL draws."""
        latent = in_process.sample(
            patcher, self.positive, self.negative, self.blank, seed, steps, CFG, SAMPLER, SCHEDULER
        )
        return self.decode(latent, scale=1)

    def control(self, sides: tuple[int, ...], work_left: float) -> dict[str, float]:
        """Return the distances of the unmodified model with as many steps as fit into the operations that are left.

        Args:
            sides: of the feature maps whose attention has fewer tokens.
            work_left: share of that attention's operations.
        """
        attention = 0
        for side in sides:
            channels, blocks = self.channels_and_blocks[side]
            attention += blocks * (4 * side**4 * channels + 8 * side**2 * channels**2)
        left = 1 - attention / self._operations * (1 - work_left)
        steps = max(1, min(int(STEPS * left), STEPS - 1))
        if steps not in self._fewer:
            self._fewer[steps] = compare(self.sample(self.patcher, steps=steps), self.reference)
        found = {f"fewer_steps_{name}": self._fewer[steps][name] for name in ("psnr", "psnr_worst")}
        return {"network_left": left, "fewer_steps": steps} | found

    def controls(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what the numbers can be held against."""
        yield "other seed", self.sample(self.patcher, seed=1)
        yield "one step fewer", self.sample(self.patcher, steps=STEPS - 1)
        half = self.patcher.clone()
        half.set_model_compute_dtype(torch.bfloat16)
        yield "bf16", self.sample(half)


def reduced(patcher: Any, setting: Setting) -> Any:
    """Return a clone of a ComfyUI MODEL whose self-attention gets fewer tokens in one sampling run."""
    clone, reducer = patcher.clone(), Reducer(setting)
    numbers: dict[Any, int] = {}
    bias: list[Tensor] = []

    def before(query: Tensor, context: Any, value: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
        key = (*options["block"], options["block_index"])
        number = numbers.setdefault(key, len(numbers))
        place = network.Place(options["block"][0], number, *options["activations_shape"][-2:])
        step = int((options["sample_sigmas"] - options["sigmas"][0]).abs().argmin())
        plan = options["plan"] = reducer.plan(query, place, step)
        if plan is None or setting.method == "zero":
            return query, context, value
        less = plan.reduce(query)
        if plan.bias is not None:
            bias.append(plan.bias)
        return (query if plan.restore is None else less), less, less

    def after(output: Tensor, options: dict[str, Any]) -> Tensor:
        plan: Plan | None = options.pop("plan", None)
        if plan is None:
            return output
        if setting.method == "zero":
            return torch.zeros_like(output)
        return output if plan.restore is None else plan.restore(output)

    def attention(function: Callable[..., Tensor], *tensors: Any, **options: Any) -> Tensor:
        if bias:  # left by `before` for the very next attention, which is its own
            options["mask"] = bias.pop()[:, None, None, :].to(tensors[0].dtype)
        return function(*tensors, **options)

    clone.set_model_attn1_patch(before)
    clone.set_model_attn1_output_patch(after)
    if setting.method == "merge keys":
        clone.model_options["transformer_options"]["optimized_attention_override"] = attention
    return clone


def compare(pictures: Tensor, reference: Tensor) -> dict[str, float]:
    """Return distances of pictures ``[pictures, height, width, ...]``, relative to the range of each reference.

    ``psnr`` is of the mean square error of all pictures, ``psnr_worst`` of the worst one; ``gradients`` is the
    correlation of the differences between neighbouring pixels.
    """
    pairs = list(zip(pictures.double().numpy(), reference.double().numpy(), strict=True))
    errors, similarities, correlations = [], [], []
    for new, old in pairs:
        extent = float(np.ptp(old))
        errors.append(float(np.mean((new - old) ** 2)) / extent**2)
        channel = 2 if old.ndim == 3 else None
        similarities.append(float(structural_similarity(old, new, data_range=extent, channel_axis=channel)))
        slopes = [np.concatenate([np.diff(x, axis=axis).ravel() for axis in (0, 1)]) for x in (new, old)]
        correlations.append(float(np.corrcoef(*slopes)[0, 1]))
    return {
        "psnr": -10 * math.log10(max(float(np.mean(errors)), 1e-20)),
        "psnr_worst": -10 * math.log10(max(*errors, 1e-20)),
        "ssim": float(np.mean(similarities)),
        "gradients": float(np.mean(correlations)),
    }
