"""The stack: everything this pack has attached to one MODEL, and how it takes effect around each model call.

Nothing is patched when a node runs. A node clones the model and attaches a new, immutable :class:`Stack` to the
clone. While sampling, ComfyUI hands every model call to the stack's APPLY_MODEL wrapper, which gives the techniques
a private copy of that call's ``transformer_options`` to put their hooks in. That is why

* removing a node gives back the untouched model: nothing was changed that could stay behind;
* clones of one model never see each other's settings, also when both are loaded at once: settings travel with the
  call, not with the shared network;
* the order of nodes does not matter: techniques install in their own canonical order, inside the hooks that other
  packs have set, wherever in the graph those were added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from ....core.activity import Activity, Summary
from .reporting import announce, log_run
from .runs import RunLog

KEY = "paceline"
"""Our name in ComfyUI's attachments, wrappers, callbacks and transformer options."""

ACTIVE_STACK = "paceline_active_stack"
"""Transformer option that names another stack than the wrapper's own: see ``guiders``."""


class ModelCall:
    """One call of the network, as the techniques see it.

    Attributes:
        model: the live ``BaseModel``; never one remembered from when a node ran, as clones can move to another.
        sigmas: noise levels of the batch, ``[batch]``.
        transformer_options: this call's own copy, free to change; also reaches patches as ``extra_options``.
        activities: counts of this call, by the technique's kind.
        shapes: sizes of all tensors that the network is given, by the names of ``BaseModel.apply_model``: ``x`` is the
            latent, ``c_crossattn`` the text; the rest is the family's own. Those of a list are ``name[0]`` and so on.
    """

    def __init__(
        self,
        model: Any,
        sigmas: Any,
        transformer_options: dict[str, Any],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.model = model
        self.sigmas = sigmas
        self.shapes = shapes or {}
        self.transformer_options = dict(transformer_options)
        self.transformer_options["patches"] = dict(transformer_options.get("patches", {}))
        self.transformer_options[KEY] = self
        self.activities: dict[str, Activity] = {}
        self.cleanup = ExitStack()

    def forget(self) -> None:
        """Let go of what belongs to the call, which is over.

        Hooks hold the call, and the call holds the options with the hooks. Such a circle would keep the model and the
        options' tensors in memory until Python looks for circles.
        """
        self.model = self.sigmas = None
        self.transformer_options = {}

    def add_innermost_pair(self, name: str, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        """Add a patch before and one after attention ``name`` (attn1, attn2), inside all pairs set by others.

        ComfyUI runs input patches and output patches in the same order, so pairs of two packs would cross. Last in,
        first out is only right when ours comes last on the way in and first on the way out.
        """
        patches = self.transformer_options["patches"]
        patches[f"{name}_patch"] = [*patches.get(f"{name}_patch", ()), before]
        patches[f"{name}_output_patch"] = [after, *patches.get(f"{name}_output_patch", ())]


class Technique(ABC):
    """One optimisation attached to a model.

    Attributes:
        kind: at most one technique of a kind is on a model; a second one replaces the first.
        order: place in the canonical order; higher installs later, i.e. further outside.
        title: the node's display name.
        node_id: the node that attached it, told about each run.
        runs: what it did; shared by all clones that carry this technique.
        together: all techniques that the same node has attached, this one among them; empty if there is only one.
    """

    kind: ClassVar[str]
    order: ClassVar[int]
    title: ClassVar[str]

    def __init__(self, node_id: str | None = None) -> None:
        self.node_id = node_id
        self.runs = RunLog()
        self.together: tuple[Technique, ...] = ()

    @abstractmethod
    def describe(self) -> str:
        """Return the settings and where the technique is eligible, in one line."""

    @abstractmethod
    def install(self, call: ModelCall, activity: Activity) -> None:
        """Put the technique's hooks into one model call."""

    def run_changed(self) -> None:  # noqa: B027 - most techniques keep nothing
        """Drop what was kept from one model call to the next: a sampling run begins or has ended."""

    @abstractmethod
    def summarize(self, activity: Activity) -> Summary:
        """Return in words what ``activity`` says."""

    def last_summary(self) -> Summary:
        """Return what the last run did, or that there was none yet."""
        run = self.runs.latest
        if run is None:
            return Summary("waiting", "not sampled yet")
        return self.summarize(run.activity)


@dataclass(frozen=True)
class Stack:
    """The techniques attached to one model, in canonical order. Immutable, so clones can share it."""

    techniques: tuple[Technique, ...] = ()

    def find(self, kind: str) -> Technique | None:
        """Return the technique of ``kind``, or None."""
        return next((technique for technique in self.techniques if technique.kind == kind), None)

    def with_technique(self, technique: Technique) -> Stack:
        """Return a stack with ``technique`` in the place of any other of its kind."""
        others = [other for other in self.techniques if other.kind != technique.kind]
        return Stack(tuple(sorted([*others, technique], key=lambda item: item.order)))

    def apply_model(self, executor: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one model call with the techniques in place (ComfyUI's APPLY_MODEL wrapper).

        ``args`` are those of ``BaseModel.apply_model``: x, sigmas, c_concat, c_crossattn, control,
        transformer_options.
        """
        arguments = list(args)
        options = arguments[5] if len(arguments) > 5 else kwargs.get("transformer_options", {})
        if KEY in options:  # a wrapper between us and the network starts over: the hooks are in place already
            return executor(*args, **kwargs)
        techniques = options.get(ACTIVE_STACK, self).techniques
        shapes = {name: tuple(value.shape) for name, value in _named(args, kwargs) if hasattr(value, "shape")}
        call = ModelCall(executor.class_obj, arguments[1], options, shapes)
        try:
            with call.cleanup:
                for technique in techniques:
                    activity = call.activities.setdefault(technique.kind, Activity(model_calls=1))
                    technique.install(call, activity)
                if len(arguments) > 5:
                    arguments[5] = call.transformer_options
                else:
                    kwargs = {**kwargs, "transformer_options": call.transformer_options}
                result = executor(*arguments, **kwargs)
        finally:
            call.forget()
        for technique in techniques:
            technique.runs.add(call.activities[technique.kind])
        return result

    def begin(self, patcher: Any) -> None:
        """Start counting a sampling run (ComfyUI's ON_PRE_RUN callback)."""
        for technique in self.techniques:
            if technique.runs.begin(id(patcher)):
                technique.run_changed()

    def finish(self, patcher: Any) -> None:
        """Stop counting, and tell the log and the nodes what happened (ComfyUI's ON_CLEANUP callback)."""
        finished = []
        for technique in self.techniques:
            run = technique.runs.finish(id(patcher))
            if run is not None:
                technique.run_changed()
                finished.append((technique, technique.summarize(run.activity)))
        if finished:
            log_run([f"{technique.title}: {summary.text}" for technique, summary in finished])
        told: set[int] = set()
        for technique, summary in finished:
            if id(technique) not in told:
                told.update(map(id, technique.together))
                announce(technique.node_id, _summary_of_all(technique.together) if technique.together else summary)


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments of ``BaseModel.apply_model`` with their names; the items of a list as ``name[0]`` etc."""
    named = [*zip(("x", "t", "c_concat", "c_crossattn", "control"), args, strict=False), *kwargs.items()]
    listed = [(name, value) for name, value in named if isinstance(value, (list, tuple))]
    return named + [(f"{name}[{index}]", item) for name, value in listed for index, item in enumerate(value)]


def report_together(techniques: Sequence[Technique]) -> None:
    """Let techniques that one node has attached, also to several objects, share the node's message after each run."""
    for technique in techniques:
        technique.together = tuple(techniques) if len(techniques) > 1 else ()


def _summary_of_all(techniques: Sequence[Technique]) -> Summary:
    """Return what several techniques did in their last runs, in one message."""
    summaries = [technique.last_summary() for technique in techniques]
    states = {summary.state for summary in summaries}
    working = [
        t.title for t, summary in zip(techniques, summaries, strict=True) if summary.state in ("active", "partly")
    ]
    text = f"{len(working)} of {len(techniques)} active{': ' if working else ''}{', '.join(working)}"
    details = []
    for technique, summary in zip(techniques, summaries, strict=True):
        details += [f"{technique.title}: {summary.text}", *(f"  {line}" for line in summary.details)]
    # What has not run yet (the VAE, before the first decoding) takes nothing from what has.
    states = states - {"waiting"} or states
    return Summary(states.pop() if len(states) == 1 else "partly", text, details=tuple(details))


def stack_of(patcher: Any) -> Stack:
    """Return what this pack has attached to a MODEL; an empty stack if nothing."""
    return patcher.get_attachment(KEY) or Stack()
