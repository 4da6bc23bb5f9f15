"""Reuse Steps on one MODEL.

The sampler knows the noise levels; at each prediction of the guider the rule decides; and the passes that it asks for
are the outermost place at which all of a step's work can be left out: ControlNets, both halves of the batch, waiting
for the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..core.activity import Activity
from ..core.errors import UnsupportedModel
from ..core.not_copied import Function
from ..core.shadow import whose
from ..core.technique import ATTENTION, COMPILATION
from ..models.samplers import sampler_of
from ..step_reuse.history import Passes
from ..step_reuse.parts import Blend, split_for
from ..step_reuse.path import LEFT_OUT, RESIZED, Blocks
from ..step_reuse.reuse_policy import StepReusePolicy
from ..step_reuse.reuse_settings import StepReuseSettings
from ..step_reuse.rule import Rule
from .run.comfy_technique import ComfyTechnique, ModelCall, around_network
from .run.sampling_run import KEY, SamplerCall, SamplingRun, TakesPart, followed_sampler, stands_at
from .run.stack import stack_of
from .structure.model_facts import is_compiled_by_others, is_flow, require_model
from .structure.protocols import Executor, ModelPatcher, Options

POLICIES = "attention_backend_history_v1"
_LAYOUT = "minimax_h3_layout"
"""Transformer option in which the one network that has a layout leaves it."""

UNKNOWN = "another node computes attention, in a way that can change with the next step"


class UnknownRoute(Exception):
    """Nobody can say by which way attention goes."""


class AttentionRoute:
    """The ways of one sampling run.

    ``broken``: kinds of calls in which our own backend has failed, and why.
    """

    def __init__(self, run: SamplingRun, broken: Mapping[Hashable, str]) -> None:
        self._run, self._broken = run, broken
        self._calls: dict[Hashable, tuple[Options, object]] = {}

    def watch(self, options: Options) -> None:
        """Let a call of the network with these ``transformer_options`` leave what the policies ask for."""
        if POLICIES in options:
            around_network(options, "route", self._seen)

    def _seen(self, executor: Executor, *args: Any, **kwargs: Any) -> object:
        result = executor(*args, **kwargs)
        given = (*args, *kwargs.values())
        options = next((one for one in given if isinstance(one, dict) and POLICIES in one), None)
        if options is not None:
            passes = tuple(options.get("uuids", ()))
            self._calls[passes] = ({name: options[name] for name in options if name != KEY}, executor.class_obj)
        return result

    def at(self, sigma: float) -> Hashable:
        """Return the key of the way at a noise level; raises `UnknownRoute`."""
        guard = self._run.guard
        ours = () if guard is None else tuple(guard.faults)
        return (ours, tuple(self._broken), tuple(self._theirs(sigma)))

    def _theirs(self, sigma: float) -> list[Hashable]:
        found: list[Hashable] = []
        for options, network in self._calls.values():
            level = torch.full_like(options["sigmas"], sigma) if "sigmas" in options else torch.tensor([sigma])
            try:
                for name, policy in options[POLICIES].items():
                    way = policy(layout=options.get(_LAYOUT), options={**options, "sigmas": level}, model=network)
                    hash(way)
                    if way is None:
                        raise UnknownRoute
                    found.append((name, way))
            except (AttributeError, TypeError) as error:  # another contract than the one we know
                raise UnknownRoute from error
        return found

    def forget(self) -> None:
        """Let go of the network and its options at the end of the run."""
        self._calls.clear()


COUNTS = "{who} counts its own calls, and some were skipped: the same seed may give another picture next time"
UNASKED = "this guider has two models, and only the nodes of the first model count: put Reuse Steps before that model"

OTHER_CACHES = {
    "easycache": "EasyCache or LazyCache",
    "rel_l1_thresh": "TeaCache",
    "teacache_rel_l1_thresh": "TeaCache",
}
"""Transformer options of nodes that also skip steps, with the names of these nodes."""


class ReuseRun(TakesPart):
    """Forecasts the passes of the network one by one, because guiders and other nodes read them.

    ``shape``: of the sampler's latents. ``blocks``: of the network. ``route``: of its attention. ``blend``: see
    ``Rule.end``.
    """

    def __init__(self, rule: Rule, shape: torch.Size, blocks: Blocks, route: AttentionRoute) -> None:
        self.rule, self._shape, self._blocks, self.route = rule, shape, blocks, route
        self._passes = Passes()
        self._latent = torch.empty(0)
        self._active: Hashable = None
        self._calls = self._given = 0
        self.blend: Blend | None = None

    def evaluates(self, run: SamplingRun, guider: object, x: Tensor, timestep: Tensor, compute: Function) -> Any:
        """Forecast an evaluation, or compute it; with others in it, or another way of attention, it starts anew."""
        sigma, active = stands_at(run, guider, timestep)
        self._latent = x.float().clone()
        self._calls = self._given = 0
        route: Hashable = None
        try:
            route = self.route.at(sigma)
        except UnknownRoute:
            self.rule.step_aside(UNKNOWN)
        if (active, route) != self._active:
            self._forget()
            self._active = (active, route)
        if x.shape != self._shape:
            self.rule.step_aside(RESIZED)
        self.rule.begin(self.rule.place_of(sigma))
        guided = compute()
        if not self._given:
            self.rule.compute()  # nobody asked for the passes
            if self._blocks.were_left_out():
                self.rule.step_aside(LEFT_OUT)
        return self.rule.end(self._latent, guided, self.blend)

    def passes(self, conds: Sequence[object], x: Tensor, compute: Function) -> Any:
        """Forecast the passes of a call, or compute them; an evaluation with other ones than before starts anew."""
        rule, call, present = self.rule, self._calls, [cond is not None for cond in conds]
        self._calls += 1
        if rule.skips and self._passes.can(rule.method, call, present):
            self._given += 1
            return self._passes.forecast(rule.method, call, rule.place, x)
        if rule.skips:
            if call == 0:
                self._forget()
            rule.compute(some=self._given > 0)
        outputs = compute()
        if rule.aside:
            return outputs
        found = [out if there else None for out, there in zip(outputs, present, strict=True)]
        same = call == 0 and self._latent.shape == x.shape
        self._passes.keep(call, rule.place, self._latent if same else x.float().clone(), found)
        # Of windows, tiles or regions a call gives a part, and that is no picture.
        if found[0] is not None and x.shape == self._shape:
            rule.first_pass(found[0])
        return outputs

    def _forget(self) -> None:
        self.rule.forget()
        self._passes = Passes()


class ComfyStepReuse(ComfyTechnique[ModelCall]):
    """Forecasts steps of one MODEL; `UnsupportedModel` if another node on it skips steps already."""

    policy: StepReusePolicy

    def __init__(self, patcher: ModelPatcher, settings: StepReuseSettings) -> None:
        require_model(patcher)
        other = other_cache(patcher.model_options)
        if other is not None:
            raise UnsupportedModel(
                f"{other} is on this MODEL already, and also skips steps.",
                f"Remove {other} or Reuse Steps: each would measure the other's forecasts.",
            )
        super().__init__(StepReusePolicy(settings, UNASKED))

    def install(self, call: ModelCall, activity: Activity) -> None:
        activity.use("call")
        reuse: Any = call.run.kept.get(self.kind)
        if reuse is not None:
            reuse.route.watch(call.transformer_options)

    def run_begins(self, run: SamplingRun, call: SamplerCall) -> None:
        split = split_for(shapes_in(call.guider.conds) or [call.noise.shape], call.mask)
        flow, why = is_flow(call.guider.model_patcher), refusals(call.sampler, call.guider, call.options)
        rule = self.policy.rule_for(run.levels, sampler_name(call.sampler), flow, why, split)
        if rule is None:
            return
        run.followed = sampler_of(followed_sampler(call)).once_a_step
        patcher, stack = call.guider.model_patcher, stack_of(call.guider.model_patcher)
        blocks, attention = blocks_of(patcher, call.options), cast(Any, stack.find(ATTENTION))
        route = AttentionRoute(run, {} if attention is None else attention.policy.broken)
        run.kept[self.kind] = reuse = ReuseRun(rule, call.noise.shape, blocks, route)
        for end in (rule.read, route.forget, blocks.leave):  # the last one first
            call.cleanup.callback(end)
        call.cleanup.callback(Counters(call.options).tell, rule)
        if call.mask is not None:
            _tell_of_mask(reuse, call.options, call.mask, call.latent)


class Counters:
    """The whole numbers that the patches of a run keep, in themselves or in what they hold, as they are now.

    Patches that count their own calls to know the step miss those that are left out.
    """

    def __init__(self, options: Options) -> None:
        self._seen = [(patch, one, dict(_numbers(one))) for patch in _patches(options) for one in _held(patch)]

    def tell(self, rule: Rule) -> None:
        """Say at the end of a run whose patch keeps other numbers by now, if calls were left out."""
        moved = (whose(patch) for patch, one, before in self._seen if before != dict(_numbers(one)))
        if rule.outcome.forecast and (who := next(filter(None, moved), "")):
            rule.outcome.note(COUNTS.format(who=who))


def _patches(options: Options) -> Iterator[Any]:
    for kind in ("patches", "patches_replace"):
        for found in options["transformer_options"].get(kind, {}).values():
            yield from found.values() if isinstance(found, Mapping) else found


def _held(patch: Any) -> Iterator[Any]:
    owner = getattr(patch, "__self__", patch)
    yield owner
    for value in getattr(owner, "__dict__", {}).values():
        yield from value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else (value,)


def _numbers(owner: Any) -> Iterator[tuple[str, int]]:
    return ((name, value) for name, value in getattr(owner, "__dict__", {}).items() if type(value) is int)


def _tell_of_mask(run: ReuseRun, options: Options, mask: Tensor, kept: Tensor) -> None:
    """Tell a run what of each prediction reaches the sampler; ``options`` are the run's own.

    Beyond the guider ComfyUI blends the image that is kept into the sampler's latent and into each prediction.
    """
    run.blend, changes = Blend(mask, kept), options.get("denoise_mask_function")
    if changes is None:
        return

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        found: Tensor = changes(*args, **kwargs)
        run.blend = Blend(found, kept)
        return found

    options["denoise_mask_function"] = noted


def refusals(sampler: object, guider: object, options: Options) -> list[str]:
    """Return why no step of a run may be left out, as clauses; none where that is possible."""
    name, other = sampler_name(sampler), other_cache(options)
    found = [f"{other} is on the model too, so this node does nothing"] if other else []
    if name == "dpm_adaptive":
        found.append(f"the sampler {name} chooses its steps by an error that a forecast would hide")
    if "context_handler" in options:
        found.append("context windows move over the frames, so later steps cannot be forecast from earlier ones")
    if [] in getattr(guider, "conds", {}).values() and getattr(guider, "cfg", None) != 1.0:
        # ComfyUI takes zeros for its pass: the guided picture is the other one times the scale.
        found.append("a conditioning is empty, so guidance scales the picture itself, and no estimate covers that")
    return found


def blocks_of(patcher: ModelPatcher, options: Options) -> Blocks:
    """Return the watch on a MODEL's blocks, until it is left."""
    # Compiled code, ours or of other nodes, would be compiled again for a hook in it.
    ours = stack_of(patcher).find(COMPILATION) is not None
    return Blocks(patcher.model.diffusion_model, ours or is_compiled_by_others(options["transformer_options"]))


def sampler_name(sampler: object) -> str:
    """Return ComfyUI's name of a sampler, or its class's; ``ddim`` is ``euler``, the same function in ComfyUI."""
    function = getattr(sampler, "sampler_function", None)
    name: str = getattr(function, "__name__", type(sampler).__name__)
    return name.removeprefix("sample_").removesuffix("_function").replace("unipc", "uni_pc")


def other_cache(options: Options) -> str | None:
    """Return the name of a node that also skips steps, if one has left its mark in the options."""
    transformer_options = options.get("transformer_options", {})
    return next((title for key, title in OTHER_CACHES.items() if key in transformer_options), None)


def shapes_in(conds: dict[str, list[dict[str, Any]]]) -> Sequence[Sequence[int]] | None:
    """Return the shapes of the latents that ComfyUI has packed into one; None for a latent that is not packed."""
    entries = (entry.get("model_conds", {}) for some in conds.values() for entry in some or ())
    told = next((entry["latent_shapes"] for entry in entries if "latent_shapes" in entry), None)
    return getattr(told, "cond", None)
