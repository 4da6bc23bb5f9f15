"""Nodes of others that copy options deeply, before a run and in it: the copy belongs to the same run."""

from __future__ import annotations

import copy

import pytest
import torch
from comfy_host import checkpoints, in_process

from .test_off_again import ON

NODES = ("merge", "attention", "fuse", "int8", "precision", "reuse", "sdpa in half precision")


def no_deeper(value):
    """Copy dictionaries and lists, and share everything else: as nodes do that do not copy deeply."""
    if isinstance(value, dict):
        return {key: no_deeper(item) for key, item in value.items()}
    return [*value] if isinstance(value, list) else value


def guided(model, copied):
    """Guidance by a second pass with changed options, which are a copy."""
    import comfy.samplers
    from comfy.model_patcher import set_model_options_patch_replace

    def before_guidance(args):
        options = copied(args["model_options"])
        options = set_model_options_patch_replace(options, lambda q, k, v, extra, mask=None: v, "attn1", "middle", 0)
        (other,) = comfy.samplers.calc_cond_batch(
            args["model"], [args["conds"][0]], args["input"], args["timestep"], options
        )
        args["conds_out"][0] += 0.5 * (args["conds_out"][0] - other)
        return args["conds_out"]

    clone = model.clone()
    clone.set_model_sampler_pre_cfg_function(before_guidance)
    return clone


def whole_run(model, copied):
    """A run with a copy of its options."""
    from comfy.patcher_extension import WrappersMP

    def sampler_sample(executor, guider, sigmas, extra_args, *args, **kwargs):
        options = copied(extra_args["model_options"])
        return executor(guider, sigmas, {**extra_args, "model_options": options}, *args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.SAMPLER_SAMPLE, "other", sampler_sample)
    return clone


def in_the_network(model, copied):
    """A patch inside of the network that keeps a copy of what it is told."""

    def patch(q, k, v, extra_options):
        kept = copied(extra_options)
        assert kept["block_index"] == extra_options["block_index"]
        return q, k, v

    clone = model.clone()
    clone.set_model_attn2_patch(patch)
    return clone


def before_the_run(model, copied):
    """A MODEL with a copy of all that hangs on it."""
    clone = model.clone()
    for name in ("model_options", "wrappers", "callbacks", "attachments"):
        setattr(clone, name, copied(getattr(clone, name)))
    return clone


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("other", [guided, whole_run, in_the_network, before_the_run])
def test_a_deep_copy_leads_to_the_same_run(studio, other, name):
    node, inputs = ON.get(name, ("SetAttentionProcessor", {"backend": "sdpa_math"}))
    drawn, counts = [], []
    for copied in (no_deeper, copy.deepcopy):
        model = studio.run(f"Paceline{node}", model=studio.model, **inputs)
        model = other(model, copied)
        drawn.append(studio.sample(model, steps=12 if name == "reuse" else 2))
        (technique,) = model.get_attachment("paceline").techniques
        counts.append(technique.last_summary())
    assert torch.equal(*drawn)
    assert counts[0] == counts[1] and counts[0].state != "waiting"


def test_a_run_inside_of_a_run_is_another_one(studio):
    """A node that samples from inside of a step, with the options of the run that goes on."""
    import comfy.samplers
    from paceline.optimizers.hosts.comfyui.stack import RUN

    seen = []

    def before_guidance(args):
        outer = args["model_options"]["transformer_options"][RUN]
        if not seen:
            seen.append(outer)
            comfy.samplers.sample(
                *(inner, torch.zeros(1, 4, 24, 16), positive, negative, 1.0, "cpu"),
                *(
                    comfy.samplers.KSAMPLER(comfy.k_diffusion.sampling.sample_euler),
                    args["sigma"].new_tensor([1.0, 0.0]),
                ),
                copy.deepcopy(args["model_options"]),
                latent_image=torch.zeros(1, 4, 24, 16),
            )
        return args["conds_out"]

    reusing = studio.run("PacelineReuseSteps", model=studio.model, budget=1.0)
    alone = reusing.clone()
    alone.set_model_sampler_pre_cfg_function(lambda args: args["conds_out"])
    expected = studio.sample(alone, steps=12)
    other = checkpoints.smallest_unet()
    inner = studio.run("PacelineReuseSteps", model=other, budget=1.0)
    positive, negative = (in_process.random_conditioning(other, seed=seed) for seed in (1, 2))
    outer = reusing.clone()
    outer.set_model_sampler_pre_cfg_function(before_guidance)
    assert torch.equal(studio.sample(outer, steps=12), expected)
    assert seen
