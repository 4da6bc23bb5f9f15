"""Which samplers can be followed step by step."""

from __future__ import annotations

from ....samplers import sampler_of
from .run import SamplerCall
from .technique import KEY


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
