"""What the page and ``tune`` send, checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Self

from ...optimizers.core.errors import InvalidSetting

Seconds = Annotated[dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(max_length=20)]
"""Of a run, by kind of node; see ``KINDS`` in web/js/speed/timeline.js."""


class Sent(BaseModel):
    """What a route is sent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def read(cls, sent: Any) -> Self:
        """Return the request; `InvalidSetting` names its first fault."""
        try:
            return cls.model_validate(sent)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part)[:40] for part in wrong["loc"]) or "it"
            remedy = f"Send {', '.join(cls.model_fields)}."
            raise InvalidSetting(f"This request cannot be read: {where}: {wrong['msg']}.", remedy) from None


class Bypassed(BaseModel):
    """A node of the page that is switched off: its execution id, type and title, and the files that it names."""

    id: str
    type: str
    title: str
    values: list[str]


class Request(Sent):
    """One question about a workflow.

    Attributes:
        do: ``look`` says what is expected, ``run`` begins, ``next`` goes on where the last prompt has ended, ``keep``
            gives the workflow with the offer's nodes, ``prove`` measures it, ``drop`` forgets all.
        prompt: the workflow in the API format; all but ``look`` and ``run`` go on with a ``job`` that knows it.
        choice: how much the picture may change, a name of ``core/choices.py``.
        pictures: how many are to be drawn: they have to win back what costs time once.
        job: id of a job that has begun.
        stopped: whether the last prompt was stopped.
        seconds: of the run that was watched.
        bypassed: nodes that are no part of the prompt, for ``look`` and ``run``.
        names: of widgets that a person sees outside of a subgraph, by ``node.input``, for ``look`` and ``run``.
    """

    do: Literal["look", "run", "next", "keep", "prove", "drop"]
    prompt: dict[str, Any] = Field(default_factory=dict)
    choice: Literal["lossless", "balanced", "fast"] = "balanced"
    pictures: Literal[1, 20, 1000] = 20
    job: str = ""
    stopped: bool = False
    seconds: Seconds = Field(default_factory=dict)
    bypassed: list[Bypassed] = Field(default_factory=list)
    names: dict[str, str] = Field(default_factory=dict, max_length=3000)
