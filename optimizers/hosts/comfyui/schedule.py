"""Where in the sampling schedule a model call stands."""

from __future__ import annotations

import torch

from .stack import ModelCall


def step_index(call: ModelCall) -> torch.Tensor:
    """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

    It is found from the noise level, not counted, so that the positive and the negative pass of a step get the same
    number however ComfyUI batches them. Solvers that evaluate between two steps get the nearer one. Zero if the
    model is called outside of a sampler. A tensor, so that nothing waits for the GPU and nothing recompiles.
    """
    schedule: torch.Tensor | None = call.transformer_options.get("sample_sigmas")
    if schedule is None:
        return torch.zeros((), dtype=torch.int64, device=call.sigmas.device)
    sigma: torch.Tensor = call.sigmas.flatten()[0].to(schedule)
    return (schedule - sigma).abs().argmin()


def ramp_factor(call: ModelCall, ramp: str) -> float:
    """Return the factor of a ratio that changes over the steps: ``fade_out`` 1, then 0.5; ``fade_in`` 0.5, then 1.

    In two stages, because each ratio gives tensors of another size, and each size is another compiled graph: two are
    the fewest that change anything. Reading the step waits for the GPU, so it is only done when there is a ramp.
    """
    schedule = call.transformer_options.get("sample_sigmas")
    if ramp == "none" or schedule is None:
        return 1.0
    in_first_half = int(step_index(call)) * 2 < len(schedule) - 1
    return 1.0 if in_first_half == (ramp == "fade_out") else 0.5


def in_window(call: ModelCall, start_percent: float, end_percent: float) -> bool:
    """Return whether the call lies between two points of the schedule (0 is the start, 1 the end of denoising).

    Percentages become noise levels by the model's own ``percent_to_sigma``, as in ComfyUI's conditioning ranges.
    Reading the noise level waits for the GPU, so it is only done when there is something to decide.
    """
    if start_percent <= 0.0 and end_percent >= 1.0:
        return True
    sampling = call.model.model_sampling
    sigma = float(call.sigmas.flatten()[0])
    return float(sampling.percent_to_sigma(end_percent)) < sigma <= float(sampling.percent_to_sigma(start_percent))
