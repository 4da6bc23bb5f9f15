"""A component of a pipeline as what techniques are attached to, in place."""

from __future__ import annotations

from collections.abc import Iterable

from .components import Component
from .host import Host, PipelineTechnique, host_of


class ComponentTarget:
    """One component, with what is on it.

    A part that stands alone is its own ``pipeline``, unless it is known of which pipeline it is from what is on it.
    """

    def __init__(self, component: Component, pipeline: object, optional: bool = False) -> None:
        host = host_of(component.part)
        if host is not None and host.pipeline is not None and pipeline is component.part:
            component, pipeline = host.component, host.pipeline
        self.component, self.pipeline, self.optional = component, pipeline, optional

    @property
    def techniques(self) -> tuple[PipelineTechnique, ...]:
        host = host_of(self.component.part)
        return () if host is None else host.techniques

    def with_techniques(self, techniques: tuple[PipelineTechnique, ...]) -> object:
        """Put exactly these techniques on the component; after an error it has the same as before."""
        before = host_of(self.component.part)
        try:
            self._put_on(techniques, self.pipeline, self.optional)
        except BaseException:
            self.put_back(before)
            raise
        return self.component.part

    def put_back(self, before: Host | None) -> None:
        """Put on the component what another host had put on it: nothing if None."""
        if before is None:
            self._put_on((), self.pipeline, self.optional)
        else:
            self._put_on(before.techniques, before.pipeline or self.component.part, before.optional)

    def _put_on(self, techniques: Iterable[PipelineTechnique], pipeline: object, optional: bool) -> None:
        now = host_of(self.component.part)
        if now is not None:
            now.detach()
        made = [type(item)(item.settings) for item in techniques]
        if made:
            Host(self.component, pipeline, made, optional).attach()
