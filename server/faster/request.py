"""What the page and ``tune`` ask."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import InvalidSetting


class Request(BaseModel):
    """One question about a workflow.

    Attributes:
        do: ``look`` says what is expected, ``run`` begins, ``next`` goes on where the last prompt has ended, ``keep``
            gives the workflow with an offer's nodes, ``prove`` measures an offer, ``drop`` forgets all.
        prompt: the workflow in the API format; all but ``look`` and ``run`` go on with a ``run`` that knows it.
        choice: how much the picture may change, a name of ``core/choices.py``.
        run: of a run that has begun.
        offer: number of an offer of the answer.
        stopped: whether the last prompt was stopped.
        seconds: of the run that was watched, by kind of node; see ``KINDS`` in web/js/timeline.js.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    do: Literal["look", "run", "next", "keep", "prove", "drop"]
    prompt: dict[str, Any] = Field(default_factory=dict)
    choice: Literal["lossless", "balanced", "fast"] = "balanced"
    run: str = ""
    offer: int = Field(default=0, ge=0)
    stopped: bool = False
    seconds: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict, max_length=20)


def read_request(sent: Any) -> Request:
    """Return a request; `InvalidSetting` names the first thing that is wrong with it."""
    try:
        return Request.model_validate(sent)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in wrong["loc"]) or "it"
        remedy = "Send do, and prompt and choice, or run."
        raise InvalidSetting(f"This request cannot be read: {where}: {wrong['msg']}.", remedy) from None
