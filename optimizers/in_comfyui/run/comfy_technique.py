"""What a technique is in ComfyUI, and one call of a MODEL's network as it sees it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor

from ...core import technique as core
from ...core.activity import Activity, Summary, with_faults
from ...core.not_copied import Function, NotCopied
from ...core.phrases import phrase
from ...core.technique import find, in_order
from ...guard import GuardedEvaluation
from ..structure.protocols import BaseModel, ModelPatcher, Options
from .reporting import announce
from .run_log import Run, RunLog
from .sampling_run import KEY, RUN, SamplerCall, SamplingRun

PATCHES = ("patches", "patches_replace", "optimized_attention_override")
"""Transformer options with Python that runs inside of the network, which may ask at which block or step it is."""

_NOTHING = Activity()

Call = TypeVar("Call")
"""A call into which a technique installs itself: a :class:`ModelCall`, or one of a VAE's or ControlNet's network."""


class ModelCall(NotCopied):
    """One call of the network, as the techniques see it.

    Attributes:
        model: the live ``BaseModel``; never one remembered from when a node ran, as clones can move to another.
        sigmas: noise levels of the batch, ``[batch]``.
        transformer_options: this call's own copy, free to change; also reaches patches as ``extra_options``.
        activities: counts of this call, by the technique's kind.
        cleanup: undone when the call is over.
        run: the sampling run; one of its own outside of a sampler.
        shapes: sizes of all tensors that the network is given, by the names of ``BaseModel.apply_model``: ``x`` is the
            latent, ``c_crossattn`` the text. Those of a list are ``name[0]`` and so on, those of a dict ``name.key``.
        techniques: all that take part in the call.
        foreign_patches: whether other nodes' Python runs inside of the network.
        again: whether the same call was made before, and came to nothing.
        evaluation: what its guard wants to know of it; None where nothing is approximate.
    """

    def __init__(
        self,
        model: BaseModel,
        sigmas: Tensor,
        transformer_options: Options,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        techniques: tuple[AnyTechnique, ...] = (),
    ) -> None:
        self.model = model
        self.sigmas = sigmas
        self.shapes = shapes or {}
        self.techniques = techniques
        self.foreign_patches = any(transformer_options.get(name) for name in PATCHES)
        self.transformer_options = dict(transformer_options)
        self.run: SamplingRun = self.transformer_options.pop(RUN, None) or SamplingRun()
        self.transformer_options["patches"] = dict(transformer_options.get("patches", {}))
        self.transformer_options[KEY] = self
        self.activities: dict[str, Activity] = {}
        self._counters: list[tuple[str, Any]] = []
        self.cleanup = ExitStack()
        self.evaluation: GuardedEvaluation | None = None
        self.again = False

    def part(self) -> ModelCall:
        """Return the call as one block sees it: with counts of its own, so that it looks alike in each block."""
        part = ModelCall.__new__(ModelCall)
        vars(part).update(vars(self))
        part.activities = {kind: Activity() for kind in self.activities}
        part.count_on()
        return part

    def take(self, part: ModelCall) -> None:
        """Add the counts of a part, which begins anew."""
        for kind, activity in part.activities.items():
            if activity != _NOTHING:
                self.activities[kind].add(activity)
                part.activities[kind] = Activity()

    def count(self, kind: str, counter: Any) -> None:
        """Let what counts into its ``activity``, of this call, count into each of its parts while that runs."""
        self._counters.append((kind, counter))

    def count_on(self) -> None:
        """Count into this call again, after a part of it, or into this part."""
        for kind, counter in self._counters:
            counter.activity = self.activities[kind]

    def forget(self) -> None:
        """Break the reference cycle between hooks, call and options, which would keep the model in memory."""
        del self.model, self.sigmas
        self.techniques = ()
        self.transformer_options = {}


def around_network(options: Options, name: str, wrapper: Function, outermost: bool = False) -> None:
    """Let ``wrapper(executor, *args, **kwargs)`` run around the network in the call whose own ``options`` these are.

    Inside of the wrappers of other nodes; or ``outermost``, outside of them.
    """
    from comfy.patcher_extension import WrappersMP

    wrappers = options.get("wrappers", {})
    others, ours = wrappers.get(WrappersMP.DIFFUSION_MODEL, {}), {f"{KEY}_{name}": [wrapper]}
    around = {**ours, **others} if outermost else {**others, **ours}
    options["wrappers"] = {**wrappers, WrappersMP.DIFFUSION_MODEL: around}


def shapes_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return sizes of the arguments of ``BaseModel.apply_model`` by name, see ``ModelCall.shapes``."""
    named = [*zip(("x", "t", "c_concat", "c_crossattn"), args, strict=False), *kwargs.items()]
    return {place: size for name, value in named for place, size in _sizes(name, value)}


def _sizes(name: str, value: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    if hasattr(value, "shape"):
        yield name, tuple(value.shape)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _sizes(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _sizes(f"{name}.{key}", item)


class ComfyTechnique(core.Technique, Generic[Call]):
    """One optimization attached to a MODEL, a VAE or a CONTROL_NET.

    Attributes:
        node_id: the node that has attached it, told about each run; None without a page.
        runs: counts of its runs; shared by all clones that carry this technique.
        report: tells the node about the last run; techniques of one node may share one.
        blocks_share_code: whether the network's blocks run one code, so that each must begin alike.
        not_run, under_way: headlines before the first run, and during a run until its first call is finished.
    """

    blocks_share_code: bool = False
    not_run: ClassVar[str] = phrase("not sampled yet")
    under_way: ClassVar[str] = phrase("sampling")

    def __init__(self, policy: core.Policy) -> None:
        super().__init__(policy)
        self.node_id: str | None = None
        self.runs = RunLog(policy)
        self.report: Callable[[], None] = lambda: announce(self.node_id, self.last_summary(), self.title)

    @abstractmethod
    def install(self, call: Call, activity: Activity) -> None:
        """Put the technique's hooks into one call."""

    def install_exactly(self, call: Call, activity: Activity) -> None:  # noqa: B027 - most leave all of it out
        """Put into one call what is left of a technique that approximates where nothing may be approximate."""

    def nothing_to_do(self, options: Options) -> str:
        """Return why it changes nothing in a call with these ``transformer_options``; "" where it may."""
        return ""

    def model_for(self, patcher: ModelPatcher, techniques: tuple[core.Technique, ...]) -> ModelPatcher:
        """Return the MODEL that ``techniques``, which are about to be attached, work on; ``patcher`` for most."""
        return patcher

    def run_begins(self, run: SamplingRun, call: SamplerCall) -> None:  # noqa: B027 - most keep nothing for a run
        """Put what takes part in a run into ``run.kept``; called again where the sampler begins again."""

    def last_summary(self) -> Summary:
        """Return the summary of all of its runs in the last prompt."""
        run = self.runs.latest
        if run is None:
            return Summary("waiting", self.not_run)
        found = self.summary_of(run)
        if found.state != "working":
            found = self.runs.earlier.ending_with(found, run.activity)
        return replace(found, neutral=self.policy.neutral)

    def summary_of(self, run: Run) -> Summary:
        """Return the summary of its latest run."""
        if run.activity.model_calls:
            return with_faults(self.policy.summarize(run.activity), run.activity)
        if run.seconds is None:
            return Summary("working", self.under_way, details=(self.policy.describe(),))
        why = (
            "the run was cancelled or failed before its first call was finished, or a guider with two models used the "
            "first model's nodes"
        )
        return Summary("inactive", phrase("no call was finished"), details=(why,))


AnyTechnique = ComfyTechnique[Any]
"""A technique, whatever it installs itself into."""


class Target(Protocol):
    """A MODEL, a VAE or a CONTROL_NET that carries techniques."""

    @property
    def techniques(self) -> tuple[AnyTechnique, ...]:
        """What is attached, in canonical order."""

    def with_techniques(self, techniques: tuple[AnyTechnique, ...]) -> Any:
        """Return a copy of the object with exactly these techniques."""


def attach_for(node: str | None, target: Target, technique: AnyTechnique) -> object:
    """Return the target's object with ``technique`` attached, in the place of one of its kind; it reports to a node.

    ``node`` is None where there is no page. The node of a technique that is replaced is told.
    """
    technique.node_id = node
    replaced = find(target.techniques, technique.kind)
    result = target.with_techniques(in_order([*target.techniques, technique]))
    headline, *details = technique.policy.clauses()
    if replaced is not None:
        settings = replaced.policy.describe()
        details.append(f"replaces an earlier {replaced.title} ({settings})")
        if replaced.node_id != node is not None:
            by = phrase("replaced by {title} #{node}", title=technique.title, node=node)
            announce(replaced.node_id, Summary("inactive", by, details=(settings,)), replaced.title)
    announce(node, Summary("waiting", headline, details=tuple(details)), technique.title)
    return result
