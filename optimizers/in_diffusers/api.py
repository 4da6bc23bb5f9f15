"""``optimize``, ``restore`` and ``report``: the Python face of this package, for diffusers pipelines."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..compilation.compile_settings import CompileSettings
from ..core.activity import Summary
from ..core.errors import InvalidSetting, UnsupportedModel
from ..quantization.int8_settings import QuantizationSettings
from ..token_merging.tome_settings import TokenMergingSettings
from .components import DENOISER, Claim, Component, asked_on, choose, components_of, remember
from .host import Host, host_of
from .pipeline_attention import Attention, ComponentAttention
from .pipeline_compilation import ComponentCompilation
from .pipeline_int8 import ComponentQuantization
from .pipeline_precision import ComponentPrecision, Precision
from .pipeline_qkv_fusion import ComponentQKVFusion, FuseQKV
from .pipeline_step_reuse import ControlNetReuse, PipelineStepReuse, ReuseSteps
from .pipeline_technique import PipelineTechnique
from .pipeline_token_merging import PipelineTokenMerging

log = logging.getLogger("paceline")

_TECHNIQUES: tuple[tuple[type[Any], tuple[type[PipelineTechnique], ...]], ...] = (
    (Precision, (ComponentPrecision,)),
    (FuseQKV, (ComponentQKVFusion,)),
    (QuantizationSettings, (ComponentQuantization,)),
    (TokenMergingSettings, (PipelineTokenMerging,)),
    (Attention, (ComponentAttention,)),
    (CompileSettings, (ComponentCompilation,)),
    (ReuseSteps, (PipelineStepReuse, ControlNetReuse)),
)
"""Classes of settings, each with those of its techniques, which are for different parts."""


@dataclass(frozen=True)
class Line:
    """One technique on one component; ``summary`` is what it has done since it was put on."""

    component: str
    title: str
    description: str
    summary: Summary


class Report:
    """What is on a pipeline. Printing it tells what each optimization has done so far.

    It does not keep the pipeline in memory. As a context manager it takes everything off again at the end, and goes on
    telling what was done::

        with optimize(pipe, TokenMerging(ratio=0.5)):
            pipe("an astronaut")
    """

    def __init__(self, target: object) -> None:
        self._target: weakref.ref[Any] | None = weakref.ref(target)  # None for a copy, and at the end of a block
        self._last: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """One line for each technique on each component, as things are now; the last where it is off or gone."""
        target = None if self._target is None else self._target()
        if target is not None:
            hosts = (host for part in components_of(target) if (host := host_of(part.part)) is not None)
            self._last = tuple(line for host in hosts for line in _lines(host))
        return self._last

    def __str__(self) -> str:
        rows = []
        for line in self.lines:
            rows.append(f"{line.component}: {line.title}: {line.description}")
            rows.append(f"    {line.summary.state}: {line.summary.headline}")
            rows.extend(f"    {detail}" for detail in line.summary.details)
        is_gone = self._target is not None and self._target() is None
        return "\n".join(rows) or ("the pipeline is gone" if is_gone else "nothing is optimized")

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *error: object) -> None:
        target = None if self._target is None else self._target()
        self.__dict__.update(self.__getstate__())
        if target is not None:
            restore(target)

    def __getstate__(self) -> dict[str, Any]:
        return {"_target": None, "_last": self.lines}  # a copy has what is said now, and no pipeline


def _lines(host: Host) -> Iterator[Line]:
    name = host.component.name
    for item in host.techniques:
        yield Line(name, item.title, item.policy.describe(), item.summary())
    for item, reason in host.left_out.values():
        yield Line(name, item.title, "left out", Summary("inactive", reason))


def optimize(pipe: object, *settings: object, components: Iterable[str] | None = None) -> Report:
    """Put optimizations on a diffusers pipeline, or on one of its models; return a report of all that is on it now.

    Any subset, in any order, in one call or several: what is on a component is always put on in one order (precision,
    int8, fused projections, token merging, attention, compilation, reuse of steps), and a second setting of a kind
    replaces the first. Raises `PacelineError` if a setting cannot help; then the pipeline is as it was before the call.

    Args:
        pipe: a diffusers pipeline, or a UNet, transformer, ControlNet or VAE.
        settings: ``TokenMerging``, ``Attention``, ``Compile``, ``QuantizeInt8``, ``FuseQKV``, ``Precision``,
            ``ReuseSteps``.
        components: names of the pipeline's parts that are meant, e.g. ``["unet"]``. By default each setting goes to the
            parts it is for: token merging to the UNet, precision to everything, the rest to UNet or transformer,
            ControlNet and VAE.
    """
    known: dict[tuple[type[PipelineTechnique], ...], object] = {}
    for value in settings:
        kinds = _techniques(value)
        if kinds in known:
            raise InvalidSetting(
                f"optimize was given {known[kinds]!r} and {value!r}, which are of the same kind.", "Give one of both."
            )
        known[kinds] = value
    parts = components_of(pipe)
    chosen = choose(parts, components)
    wanted = [(kind, value) for value in settings for kind in _techniques(value)]
    plans = [(part, [one for one in wanted if part.role in one[0].roles]) for part in chosen]
    _require_use(settings, [value for _, plan in plans for _, value in plan], chosen)
    done: list[tuple[Component, tuple[Claim, ...]]] = []
    try:
        for part, plan in plans:
            if plan:
                optional = components is None and len(parts) > 1 and part.role != DENOISER
                asker: Any = None if pipe is part.part else pipe  # None for a model that asks for itself
                owner = None if asker is None else weakref.ref(asker)
                replaced = {technique.kind for technique, _ in plan}
                component, before = _as_known(part)
                done.append((component, before))
                remember(asker, component.part)
                kept = [one for one in before if one.pipeline is not asker or one.technique.kind not in replaced]
                _put_on(component, [*kept, *(Claim(technique, value, owner, optional) for technique, value in plan)])
        hosts = [host for component, _ in done if (host := host_of(component.part)) is not None]
        _require_use(settings, [item.settings for host in hosts for item in host.techniques], chosen)
    except BaseException:
        for component, before in reversed(done):
            _put_on(component, before)
        raise
    return Report(pipe)


def restore(pipe: object) -> None:
    """Take everything off: the pipeline is, bit for bit, what it was.

    Weights go back to the device they are on now; in the dtype they had, unless they were converted since. A part that
    another pipeline has optimized too keeps what that one asked for, until it is restored, or is gone. Parts that were
    taken out of the pipeline since are restored too.
    """
    there = components_of(pipe)
    since = [host.component for part in asked_on(pipe) if (host := host_of(part)) is not None]
    for part in (*there, *(one for one in since if all(one.part is not known.part for known in there))):
        component, claims = _as_known(part)
        asker, host = None if pipe is part.part else pipe, host_of(part.part)
        others = [] if asker is None else [one for one in claims if one.pipeline is not asker]
        kept = [one for one in others if one.pipeline is not None]  # else nobody can give it back
        if kept:
            log.info("%s keeps what another pipeline has put on it.", component.name)
        if _effect(kept) != _effect(claims):
            _put_on(component, kept)
        elif host is not None:
            host.claims = tuple(kept)


def report(pipe: object) -> Report:
    """Return the report of the techniques on a pipeline."""
    return Report(pipe)


def _as_known(part: Component) -> tuple[Component, tuple[Claim, ...]]:
    """Return a part by the name that it had when something was put on it first, and what was asked for on it."""
    host = host_of(part.part)
    return (part, ()) if host is None else (host.component, host.claims)


def _put_on(component: Component, claims: Sequence[Claim]) -> None:
    """Let a component have exactly these claims; after an error it has none."""
    host = host_of(component.part)
    if host is not None:
        host.detach()
    if claims:
        Host(component, claims).attach()


def _effect(claims: Sequence[Claim]) -> dict[str, tuple[object, ...]]:
    """Return the claims that count: of each kind the last."""
    return {one.technique.kind: (one.technique, one.settings, one.optional) for one in claims}


def _techniques(value: object) -> tuple[type[PipelineTechnique], ...]:
    found = next((kinds for settings, kinds in _TECHNIQUES if isinstance(value, settings)), None)
    if found is None:
        known = "TokenMerging, Attention, Compile, QuantizeInt8, FuseQKV, Precision, ReuseSteps"
        raise InvalidSetting(f"optimize was given {value!r}.", f"It takes the settings {known}.")
    return found


def _require_use(settings: tuple[object, ...], used: list[object], parts: tuple[Component, ...]) -> None:
    for value in settings:
        if value not in used:
            raise UnsupportedModel(
                f"{type(value).__name__} can do nothing for any of: {', '.join(part.name for part in parts)}.",
                "Leave it out, or name other components.",
            )
