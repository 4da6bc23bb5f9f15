"""Caches of blocks in diffusers, beside Reuse Steps there, fewer steps, and late levels left out.

    python benchmarks/block_caches.py [--quick] [--json PATH] [--threads N]

The icons' Lumina in diffusers' own pipeline, Euler with 25 steps, without guidance: with the same weights it predicts
what ComfyUI's class does. *evaluations* are calls of its blocks' attention, as a share of those of one evaluation.
MagCache and First Block Cache are diffusers' own, TeaCache is in shared/teacache.py, and cache-dit is measured where it
is installed (``pip install cache-dit``). With ``--json`` a plot is drawn beside the file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import torch
from pages.plots import plot
from shared.controls import add_pairs, held_out
from shared.distances import NOTES
from shared.icons import SIDE, as_of
from shared.measuring import arguments
from shared.record import collected, report
from shared.teacache import fitted, teacache
from shared.trained import ICONS_LUMINA, Bench, BenchRun, Solver, about_weights
from step_caches import judged
from step_reuse_constants import FIRST_SEED, PROMPTS
from torch import Tensor, nn

RENAMED = {
    "t_embedder.mlp.0": "time_caption_embed.timestep_embedder.linear_1",
    "t_embedder.mlp.2": "time_caption_embed.timestep_embedder.linear_2",
    "cap_embedder": "time_caption_embed.caption_embedder",
    "final_layer.linear": "norm_out.linear_2",
    "final_layer.adaLN_modulation.1": "norm_out.linear_1",
    "adaLN_modulation.1": "norm1.linear",
    "attention.out.": "attn.to_out.0.",
    "attention.q_norm": "attn.norm_q",
    "attention.k_norm": "attn.norm_k",
    "attention_norm1.": "norm1.norm.",
    "attention_norm2.": "norm2.",
    "feed_forward.w": "feed_forward.linear_",
}
Apply = Callable[[Any], object]
LEFT = (12, 15, 18)
"""Steps, or levels, of the plain model."""
OF_CACHES = {
    "evaluations": "calls of the blocks' attention, as a share of those of one evaluation",
    "cache-dit": "DBCache, the first two blocks always run, warm-up of 8 steps; the number is its threshold",
    "TeaCache": "written from the paper, its polynomial fitted to eight other prompts; the number is its threshold",
    "MagCache, First Block": f"diffusers {version('diffusers')}; MagCache's ratios are of another prompt and seed",
}


class Time(nn.Module):
    """diffusers' embedding of a noise level, called by that of 64 pixels as in training."""

    def __init__(self, embed: nn.Module, apart: float) -> None:
        super().__init__()
        self._embed, self._apart = embed, apart

    def forward(self, clean: Tensor) -> Tensor:
        return self._embed(1000 * (1 - as_of(1 - clean, self._apart)))


def in_diffusers(network: nn.Module, side: int) -> Any:
    """Return a pipeline around the weights of ComfyUI's class."""
    from diffusers import FlowMatchEulerDiscreteScheduler, Lumina2Pipeline, Lumina2Transformer2DModel

    state: dict[str, Tensor] = {}
    for key, value in network.state_dict().items():
        renamed = key
        for old, new in RENAMED.items():
            plain = key.startswith("context_refiner") and old == "attention_norm1."
            renamed = renamed.replace(old, "norm1." if plain else new)
        parts = value.float().chunk(3) if "attention.qkv" in key else [value.float()]
        for name, part in zip("qkv", parts, strict=False):
            state[renamed.replace("attention.qkv", f"attn.to_{name}")] = part
    transformer = Lumina2Transformer2DModel(
        sample_size=side, patch_size=2, in_channels=4, hidden_size=network.dim, num_layers=len(network.layers),
        num_refiner_layers=1, num_attention_heads=network.n_heads, num_kv_heads=network.n_heads, multiple_of=64,
        ffn_dim_multiplier=2 / 3, axes_dim_rope=tuple(network.axes_dims), axes_lens=tuple(network.axes_lens),
        cap_feat_dim=network.cap_embedder[0].weight.shape[0],
    )  # fmt: skip
    transformer.load_state_dict(state)
    apart = SIDE / side

    def rotations(ids: Tensor) -> Tensor:
        places = ids.double()
        picture = ids[..., :1] == ids[..., :1].max()
        places[..., 1:] = torch.where(picture, places[..., 1:] * apart + (apart - 1) / 2, places[..., 1:])
        angles = [
            places[..., axis : axis + 1] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)
            for axis, width in enumerate(network.axes_dims)
        ]
        return torch.cat([torch.polar(torch.ones_like(angle), angle) for angle in angles], -1)

    transformer.rope_embedder._get_freqs_cis = rotations
    transformer.time_caption_embed.time_proj = Time(transformer.time_caption_embed.time_proj, apart)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=side / 32)
    pipe = Lumina2Pipeline(transformer.eval(), scheduler, vae=None, text_encoder=None, tokenizer=None)
    pipe.set_progress_bar_config(disable=True)
    return pipe


class DiffusersBench(Bench):
    """The same pairs of prompt and seed, drawn by a pipeline."""

    def __init__(self, pairs: int) -> None:
        witness = replace(ICONS_LUMINA, name=f"{ICONS_LUMINA.name}, diffusers", guidance=1.0)
        super().__init__(witness, Solver("euler", "simple", 25))
        self.pairs = held_out(self, pairs)
        self._network = self.patcher.model.diffusion_model
        self.counted = SimpleNamespace(pictures=0.0)
        self.patcher = self.fresh()

    def fresh(self) -> Any:
        """Return a pipeline without any cache, whose blocks are counted."""
        pipe = in_diffusers(self._network, self.witness.side)
        blocks = [*pipe.transformer.layers, *pipe.transformer.noise_refiner]

        def count(*_: object) -> None:
            self.counted.pictures += 1 / len(blocks)

        for block in blocks:
            block.attn.register_forward_hook(count)
        return pipe

    @torch.no_grad()
    def sample(self, patcher: Any, prompt: str, seed: int, steps: int, sigmas: Sequence[float] | None = None) -> Tensor:
        [[text, _]] = self.encode(prompt)
        mask = torch.ones(1, text.shape[1], dtype=torch.bool)
        noise = torch.randn(self.witness.blank.shape, generator=torch.Generator().manual_seed(seed))
        return patcher(
            prompt_embeds=text, prompt_attention_mask=mask, latents=noise, guidance_scale=1.0, output_type="latent",
            num_inference_steps=steps, sigmas=sigmas, height=8 * self.witness.side, width=8 * self.witness.side,
        ).images  # fmt: skip

    def without(self, levels: Sequence[int]) -> list[float]:
        """Return the noise levels of the schedule without some, as a pipeline takes them: before its shift."""
        return [1 - level / self.solver.steps for level in range(self.solver.steps) if level not in levels]

    def runs(self, apply: Apply) -> Iterator[BenchRun]:
        from diffusers.hooks import HookRegistry
        from diffusers.hooks.hooks import CacheContext, _set_cache_context

        pipe = self.fresh()
        apply(pipe)
        for pair in self.pairs:
            # What pipelines do whose transformer has caches by name; that of Lumina has not.
            HookRegistry.check_if_exists_or_initialize(pipe.transformer).reset_stateful_hooks()
            _set_cache_context(pipe.transformer, CacheContext("cond"))
            self.counted.pictures = 0.0
            latent = self.sample(pipe, *pair, self.solver.steps)
            yield BenchRun(latent, self.counted.pictures)


def caches(bench: DiffusersBench) -> Iterator[tuple[str, Apply]]:
    """Yield Reuse Steps and the others, by name; what they must learn of the model is of prompts that judge nothing."""
    from diffusers.hooks import FirstBlockCacheConfig, MagCacheConfig, apply_first_block_cache, apply_mag_cache
    from diffusers.hooks._helpers import TransformerBlockMetadata, TransformerBlockRegistry
    from paceline import ReuseSteps, optimize

    def on(put: Callable[..., object], *given: Any) -> Apply:
        return lambda pipe: put(pipe.transformer, *given)

    for budget in (0.05, 0.15, 0.3):
        yield f"Reuse Steps {budget:g}", lambda pipe, budget=budget: optimize(pipe, ReuseSteps(budget=budget))
    steps, learned = bench.solver.steps, bench.fresh()
    draw = [partial(bench.sample, learned, prompt, FIRST_SEED, steps) for prompt in PROMPTS]
    foretold = fitted(learned.transformer, steps, draw)
    yield from ((f"TeaCache {one:g}", on(teacache, steps, one, foretold)) for one in (0.01, 0.02))
    kind = type(bench.patcher.transformer.layers[0])
    TransformerBlockRegistry.register(kind, TransformerBlockMetadata(return_hidden_states_index=0))
    learned, said = bench.fresh(), io.StringIO()
    apply_mag_cache(learned.transformer, MagCacheConfig(calibrate=True, num_inference_steps=steps))
    with contextlib.redirect_stdout(said):
        bench.sample(learned, PROMPTS[0], FIRST_SEED, steps)
    ratios = next(json.loads(line) for line in said.getvalue().splitlines() if line.startswith("[1"))
    for threshold in (0.03, 0.06, 0.12):
        config = MagCacheConfig(threshold=threshold, num_inference_steps=steps, mag_ratios=ratios)
        yield f"MagCache {threshold:g}", on(apply_mag_cache, config)
    for threshold in (0.07, 0.1, 0.15):
        yield f"First Block {threshold:g}", on(apply_first_block_cache, FirstBlockCacheConfig(threshold))
    with contextlib.suppress(ImportError):
        import cache_dit

        for order, threshold in itertools.product((0, 1), (0.08, 0.16, 0.32)):
            settings = cache_dit.TaylorSeerCalibratorConfig(taylorseer_order=order) if order else None
            # Without guidance there is one pass in each step.
            how = {"Fn_compute_blocks": 1, "residual_diff_threshold": threshold, "enable_separate_cfg": False}
            yield (
                f"cache-dit{', TaylorSeer' * order} {threshold:g}",
                lambda pipe, how=how, settings=settings: cache_dit.enable_cache(
                    pipe, cache_config=cache_dit.DBCacheConfig(**how), calibrator_config=settings
                ),
            )


def main() -> None:
    """Judge all of them by the same pairs."""
    options = arguments(__doc__.splitlines()[0], more=add_pairs)
    bench = DiffusersBench(2 if options.quick else options.pairs)
    rows = collected(judged(bench, ((name, apply, None) for name, apply in caches(bench)), LEFT))
    notes = {key: NOTES[key] for key in ("psnr", "psnr_tenth", "share", "gain", "fewer_nearer", "gain_late")}
    notes |= OF_CACHES
    with contextlib.suppress(PackageNotFoundError):
        notes["cache-dit"] += f"; version {version('cache-dit')}"
    notes[ICONS_LUMINA.name] = about_weights(ICONS_LUMINA)
    report(rows, "the plain pipeline with all steps, from the same seed", options.json, notes)
    if options.json:
        plot([asdict(row) for row in rows], options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
