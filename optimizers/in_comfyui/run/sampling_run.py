"""One sampling run, where an evaluation stands in it, and which samplers can be followed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...core.not_copied import Function, NotCopied
from ...guard import Guard
from ..structure.protocols import Executor, Options

KEY = "paceline"
"""Our name in ComfyUI's attachments, wrappers, callbacks and transformer options."""

RUN = "paceline_run"
"""Transformer option with the :class:`SamplingRun`. No network sees it."""


@dataclass(frozen=True)
class SamplerCall:
    """What a sampler is given: ``latent`` is kept where ``mask`` is 0; ``cleanup`` is done when the sampler ends."""

    sampler: Any
    guider: Any
    options: Options
    noise: Tensor
    latent: Any
    mask: Tensor | None
    cleanup: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, executor: Executor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SamplerCall:
        """Return the arguments of a SAMPLER_SAMPLE wrapper; others' wrappers may name all but the first three."""
        guider, _, extra, *rest = args
        named = {**dict(zip(("callback", "noise", "latent_image", "denoise_mask"), rest, strict=False)), **kwargs}
        latent, mask = named.get("latent_image"), named.get("denoise_mask")
        return cls(executor.class_obj, guider, extra["model_options"], named["noise"], latent, mask)


class TakesPart:
    """What a technique keeps for one run, and how it takes part in that."""

    def evaluates(self, run: SamplingRun, guider: object, x: Tensor, timestep: Tensor, compute: Function) -> Any:
        """Return the guided prediction for a latent, which ``compute`` makes."""
        return compute()

    def passes(self, conds: Sequence[object], x: Tensor, compute: Function) -> Any:
        """Return the network's outputs for several conditionings, which ``compute`` makes."""
        return compute()


class SamplingRun(NotCopied):
    """One sampling run. No ``dict``: ComfyUI copies those wherever it finds them in its options.

    Attributes:
        guard: watches its evaluations where techniques approximate.
        whole: whether the next prediction is made of a full step, where something else than the schedule says so.
        followed: whether the sampler reports each step when it is done, and calls nothing between two.
        done: steps the sampler has reported; 0 where it is not followed.
        kept: what takes part until the sampler has ended, by the technique's kind, the outermost first.
    """

    def __init__(self, guider: Any = None) -> None:
        self.guider = guider
        self.guard: Guard | None = None
        self.whole: bool | None = None
        self.begin(None)

    def begin(self, sigmas: Tensor | None) -> None:
        """Begin with a sampler, or again because its steps were spoiled: nothing of them is left."""
        self._sigmas, self._levels = sigmas, list[float]()
        self.followed, self.done = False, 0
        self.kept: dict[str, TakesPart] = {}

    @property
    def levels(self) -> list[float]:
        """The noise levels of the schedule, read from the device when they are asked for first."""
        if not self._levels and self._sigmas is not None:
            self._levels = self._sigmas.tolist()
        return self._levels

    def noise_level(self, given: Tensor) -> float:
        """Return the noise level of a call that was given it as ``[batch]``.

        In the first step it is read, with the schedule: nothing else is at work then, and some samplers move the first
        noise level.
        """
        levels = self.levels
        return levels[self.done] if 0 < self.done < len(levels) else float(given.flatten()[0])


def counted(run: Any, callback: Callable[..., object] | None) -> Callable[..., None]:
    """Return a sampler's callback that first notes in ``run.done`` how many steps are done."""

    def stepped(step: int, *others: object) -> None:
        run.done = step + 1
        if callback is not None:
            callback(step, *others)

    return stepped


def sampling_run(model_options: Options) -> SamplingRun:
    """Return the run that a guider's or sampler's ``model_options`` belong to."""
    run: SamplingRun = model_options.setdefault("transformer_options", {}).setdefault(RUN, SamplingRun())
    return run


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


def followed_sampler(call: SamplerCall) -> str:
    """Return ComfyUI's name of a sampler whose reports of steps can be followed if it calls once a step; "" for others.

    All others have to be asked for the noise level of each call: they also call between two steps.
    """
    from comfy.k_diffusion import sampling
    from comfy.patcher_extension import WrappersMP
    from comfy.samplers import KSAMPLER

    sampler, options = call.sampler, call.options
    if type(sampler) is not KSAMPLER or "model_function_wrapper" in options or sampler.extra_options.get("s_churn"):
        return ""
    name = getattr(sampler.sampler_function, "__name__", "").removeprefix("sample_")
    # Wrappers of others could hand on another noise level than the sampler's.
    kinds = (WrappersMP.SAMPLER_SAMPLE, WrappersMP.PREDICT_NOISE, WrappersMP.CALC_COND_BATCH, WrappersMP.APPLY_MODEL)
    wrappers = options["transformer_options"].get("wrappers", {})
    foreign = any(key != KEY and found for kind in kinds for key, found in wrappers.get(kind, {}).items())
    return name if sampler.sampler_function is getattr(sampling, f"sample_{name}", None) and not foreign else ""
