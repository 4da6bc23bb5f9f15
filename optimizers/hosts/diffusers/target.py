"""A component of a pipeline as what techniques are put on, in place, for those who ask."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any

from .claims import Claim
from .components import Component
from .host import Host, PipelineTechnique, host_of

log = logging.getLogger("paceline")


class ComponentTarget:
    """One component, for one pipeline that asks, or for the component itself.

    Pipelines share components. What each has asked for is a claim; of one kind the last claim is there, and what one
    pipeline gives back another keeps.
    """

    def __init__(self, component: Component, pipeline: Any, optional: bool = False) -> None:
        host = host_of(component.part)
        self.component = component if host is None else host.component
        self.pipeline = None if pipeline is component.part else pipeline
        self.optional = optional

    @property
    def techniques(self) -> tuple[PipelineTechnique, ...]:
        host = host_of(self.component.part)
        return () if host is None else host.techniques

    @property
    def claims(self) -> tuple[Claim, ...]:
        host = host_of(self.component.part)
        return () if host is None else host.claims

    def claim(self, wanted: Sequence[tuple[type[PipelineTechnique], Any]]) -> None:
        """Put on what is wanted, techniques with their settings; after an error nothing is on the component."""
        owner = None if self.pipeline is None else weakref.ref(self.pipeline)
        kinds = {technique.kind for technique, _ in wanted}
        kept = [one for one in self.claims if one.pipeline is not self.pipeline or one.technique.kind not in kinds]
        self.put_on([*kept, *(Claim(technique, value, owner, self.optional) for technique, value in wanted)])

    def release(self) -> None:
        """Take off what this pipeline has asked for, and what nobody can give back; for the component itself, all."""
        host = host_of(self.component.part)
        if host is None:
            return
        others = [] if self.pipeline is None else [one for one in host.claims if one.pipeline is not self.pipeline]
        kept = [one for one in others if one.pipeline is not None]
        if kept:
            log.info("%s keeps what another pipeline has put on it.", self.component.name)
        if _effect(kept) == _effect(host.claims):
            host.claims = tuple(kept)
        else:
            self.put_on(kept)

    def put_on(self, claims: Sequence[Claim]) -> None:
        """Let the component have exactly these claims."""
        now = host_of(self.component.part)
        if now is not None:
            now.detach()
        if claims:
            Host(self.component, claims).attach()


def _effect(claims: Sequence[Claim]) -> dict[str, tuple[object, ...]]:
    """Return what claims come to: of each kind the last one."""
    return {one.technique.kind: (one.technique, one.settings, one.optional) for one in claims}
