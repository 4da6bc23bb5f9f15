"""Reuse Steps on one MODEL.

Three wrappers: around the sampler, which knows the noise levels, and owns what is kept; around each prediction of the
guider, where it is decided what is done; and around each call for several passes, the outermost place at which all of
a step's work can be left out: ControlNets, both halves of the batch, questions to the device.

What is kept lives in the run's own copy of the options, and goes with it: nothing crosses runs, prompts or clones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ....core.errors import UnsupportedModel
from ....core.phrases import phrase, translatable
from ....core.technique import COMPILATION
from ...step_reuse.outcome import Outcome
from ...step_reuse.policy import StepReusePolicy, too_few
from ...step_reuse.run import Decision, ReuseRun
from .model import is_unet, require_model, stack_of
from .schedule import Scheduled
from .stack import STEPS, ModelCall

if TYPE_CHECKING:
    from ....core.activity import Activity, Summary
    from ....core.calls import Function
    from ...step_reuse.settings import StepReuseSettings
    from .protocols import Executor, ModelPatcher, Options
    from .schedule import SamplingSteps

RUN = "paceline_reuse_run"
"""Transformer option with the run's state. No network sees it: ``install`` takes it out of each call's options."""

OTHER_CACHES = {
    "easycache": "EasyCache or LazyCache",
    "rel_l1_thresh": "TeaCache",
    "teacache_rel_l1_thresh": "TeaCache",
}
"""Transformer options of nodes that also skip steps, with what they are called."""

ADAPTIVE = ("dpm_adaptive",)
"""Samplers that choose their steps by the error that they see, which a forecast would hide."""

LOOK_AT_PASSES = ("sampler_cfg_function", "sampler_pre_cfg_function", "sampler_post_cfg_function")
"""Options of nodes and samplers that make something else of the passes than plain guidance, or look at the negative one
in the network: how far a difference that is used again would move the picture is not known then.
"""


class StepReuse(StepReusePolicy, Scheduled):
    """Forecasts steps of one MODEL.

    Args:
        patcher: the MODEL.
        settings: what was asked for.
        notes: what else there is to say about them.

    Raises:
        UnsupportedModel: if another node on the MODEL skips steps already.
        WrongObject: if it is no MODEL.
    """

    recordable = True

    def __init__(self, patcher: ModelPatcher, settings: StepReuseSettings, notes: Sequence[str] = ()) -> None:
        require_model(patcher)
        other = _other_cache(patcher.model_options)
        if other is not None:
            raise UnsupportedModel(
                phrase("{other} is on this MODEL already, and also leaves out steps.", other=other),
                phrase("Remove {other} or Reuse Steps: each would measure what the other has made up.", other=other),
            )
        Scheduled.__init__(self)
        StepReusePolicy.__init__(self, settings, notes)

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Count a call, and keep the run's state out of the network's options."""
        call.transformer_options.pop(RUN, None)
        activity.use("call")

    def run_changed(self) -> None:
        """Forget the last outcome when a run begins: this MODEL may not be the one that is asked."""
        run = self.runs.latest
        if run is not None and run.seconds is None:
            self.outcome = Outcome()

    def summarize(self, activity: Activity) -> Summary:
        """Return what was left out, or why this MODEL was not asked."""
        if not self.outcome.evaluations and not self.outcome.notes:
            self.outcome.note(
                translatable(
                    "it is on the second model of a guider, whose first one decides: put this node on that one"
                )
            )
        return super().summarize(activity)

    def wrappers(self) -> tuple[tuple[str, Function], ...]:
        """Return the three wrappers of this module, inside of what follows the sampler."""
        from comfy.patcher_extension import WrappersMP

        return (
            *super().wrappers(),
            (WrappersMP.SAMPLER_SAMPLE, self._sampler_sample),
            (WrappersMP.PREDICT_NOISE, self._predict_noise),
            (WrappersMP.CALC_COND_BATCH, self._calc_cond_batch),
        )

    def _sampler_sample(self, executor: Executor, *args: Any, **kwargs: Any) -> object:
        """Make the run's state, and let go of it at the end (ComfyUI's SAMPLER_SAMPLE wrapper).

        ``args``: guider, sigmas, extra arguments, and what the sampler itself needs.
        """
        self.outcome = outcome = Outcome()
        guider, options = args[0], args[2]["model_options"]
        run = self._new_run(executor.class_obj, guider, args[1].tolist(), options, outcome)
        if run is None:
            return executor(*args, **kwargs)
        options["transformer_options"][RUN] = run
        try:
            return executor(*args, **kwargs)
        finally:
            options["transformer_options"].pop(RUN, None)
            run.close()

    def _new_run(
        self, sampler: object, guider: Any, levels: list[float], options: Options, outcome: Outcome
    ) -> ReuseRun | None:
        """Return the state of a run; None where nothing can be left out, with the reason in ``outcome``."""
        name = sampler_name(sampler)
        reasons: list[str] = [
            phrase("{other} is on the model too, and this node steps aside", other=other)
            for other in [_other_cache(options)]
            if other
        ]
        if name in ADAPTIVE:
            reasons.append(
                phrase("the sampler {name} chooses its steps by an error that a forecast would hide", name=name)
            )
        if "context_handler" in options:
            reasons.append(
                translatable("context windows move over the frames, so that earlier steps say nothing about later ones")
            )
        settings = self.settings
        if settings.use_guidance and stack_of(guider.model_patcher).find(COMPILATION) is not None:
            settings = replace(settings, use_guidance=False)
            outcome.note(
                translatable("the negative pass is always computed: without it, Compile UNet would need one more graph")
            )
        unet = is_unet(guider.model_patcher)
        run = ReuseRun(settings, levels, outcome, name, unet) if len(levels) > 1 else None
        if run is None or run.too_short:
            reasons.append(too_few(max(len(levels) - 1, 0)))
        if reasons or run is None:
            outcome.notes[:] = reasons
            return None
        return run

    def _predict_noise(self, executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> object:
        """Decide about one evaluation (ComfyUI's PREDICT_NOISE wrapper)."""
        options: Options = args[0] if args else kwargs.get("model_options", {})
        transformer_options = options.get("transformer_options", {})
        run: ReuseRun | None = transformer_options.get(RUN)
        if run is None:
            return executor(x, timestep, *args, **kwargs)
        steps: SamplingSteps | None = transformer_options.get(STEPS)
        sigma = float(timestep.flatten()[0]) if steps is None else steps.sigma(timestep)
        guider = executor.class_obj
        guidance = getattr(guider, "cfg", None)
        if run.settings.use_guidance and any(options.get(name) for name in LOOK_AT_PASSES):
            run.outcome.note(
                translatable("the negative pass is always computed: another node, or the sampler, looks at it")
            )
            guidance = None
        run.begin(run.place_of(sigma), x, tuple(_taking_part(getattr(guider, "conds", {}), sigma)), guidance)
        guided: Tensor = executor(x, timestep, *args, **kwargs)
        return run.end(guided)

    def _calc_cond_batch(
        self, executor: Executor, model: object, conds: list[Any], x: Tensor, timestep: Tensor, model_options: Options
    ) -> object:
        """Compute the passes, or forecast them (ComfyUI's CALC_COND_BATCH wrapper)."""
        run: ReuseRun | None = model_options.get("transformer_options", {}).get(RUN)
        if run is None:
            return executor(model, conds, x, timestep, model_options)
        slot, present = run.next_slot(), [cond is not None for cond in conds]
        if run.can_forecast(slot, present):
            return run.forecast(slot, x)
        if run.decision is Decision.GUIDANCE and slot == 0 and present == [True, True]:
            positive = executor(model, [conds[0], None], x, timestep, model_options)[0]
            outputs = [positive, run.negative_from(positive)]
        else:
            outputs = executor(model, conds, x, timestep, model_options)
        run.keep(slot, x, [out if there else None for out, there in zip(outputs, present, strict=True)])
        return outputs


def sampler_name(sampler: object) -> str:
    """Return ComfyUI's name of a sampler, e.g. ``dpmpp_2m``; of another's, the name of its class.

    ``ddim`` is ``euler``: ComfyUI runs the same function.
    """
    function = getattr(sampler, "sampler_function", None)
    name: str = getattr(function, "__name__", type(sampler).__name__)
    return name.removeprefix("sample_").removesuffix("_function").replace("unipc", "uni_pc")


def _other_cache(options: Options) -> str | None:
    """Return the name of a node that also skips steps, if one has left its mark in the options."""
    transformer_options = options.get("transformer_options", {})
    return next((title for key, title in OTHER_CACHES.items() if key in transformer_options), None)


def _taking_part(conds: dict[str, list[dict[str, Any]]], sigma: float) -> Iterator[Hashable]:
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
