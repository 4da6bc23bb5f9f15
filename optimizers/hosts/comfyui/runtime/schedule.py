"""Where an evaluation stands in its run, and which samplers can be followed step by step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from torch import Tensor

from ....samplers import sampler_of
from .run import SamplerCall, SamplingRun
from .technique import KEY


def stands_at(run: SamplingRun, guider: object, timestep: Tensor) -> tuple[float, Hashable]:
    """Return the noise level of an evaluation of a guider, and what takes part in it."""
    sigma = run.noise_level(timestep)
    return sigma, tuple(taking_part(getattr(guider, "conds", {}), sigma))


def taking_part(conds: dict[str, list[dict[str, Any]]], sigma: float) -> Iterator[Hashable]:
    """Yield what is active at a noise level: conditionings with a range, ControlNets, keyframes of hooks."""
    for name, entries in conds.items():
        for number, entry in enumerate(entries or ()):
            start, end = entry.get("timestep_start"), entry.get("timestep_end")
            if (start is not None and sigma > start) or (end is not None and sigma < end):
                continue
            yield (name, number)
            control = entry.get("control")
            while control is not None:
                first, last = control.timestep_range or (float("inf"), 0.0)
                yield (id(control), first >= sigma >= last)
                control = control.previous_controlnet
            for hook in getattr(entry.get("hooks"), "hooks", ()):
                frames = getattr(hook.hook_keyframe, "keyframes", ())
                yield (id(hook), sum(frame.start_t >= sigma for frame in frames))


def can_be_followed(call: SamplerCall) -> bool:
    """Return whether the steps that a sampler reports say at which noise level it calls."""
    from comfy.k_diffusion import sampling
    from comfy.patcher_extension import WrappersMP
    from comfy.samplers import KSAMPLER

    sampler, options = call.sampler, call.options
    if type(sampler) is not KSAMPLER or "model_function_wrapper" in options:
        return False
    name = getattr(sampler.sampler_function, "__name__", "").removeprefix("sample_")
    # All other samplers have to be asked for the noise level of each call: they also call between two steps.
    ours = sampler_of(name).once_a_step and sampler.sampler_function is getattr(sampling, f"sample_{name}", None)
    # Wrappers of others could hand on another noise level than the sampler's.
    kinds = (WrappersMP.SAMPLER_SAMPLE, WrappersMP.PREDICT_NOISE, WrappersMP.CALC_COND_BATCH, WrappersMP.APPLY_MODEL)
    wrappers = options["transformer_options"].get("wrappers", {})
    foreign = any(key != KEY and found for kind in kinds for key, found in wrappers.get(kind, {}).items())
    return ours and not foreign and not sampler.extra_options.get("s_churn")
