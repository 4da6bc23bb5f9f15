"""What the nodes share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from ..optimizers.core.activity import Summary
from ..optimizers.core.errors import CannotHelp
from ..optimizers.core.phrases import phrase
from ..optimizers.core.settings import Settings, setting
from ..optimizers.in_comfyui.run.comfy_technique import attach_for
from ..optimizers.in_comfyui.run.reporting import announce

ADVANCED = "Paceline/Advanced"
"""Category of the nodes that few workflows need."""

Made = tuple[Any, ...]
"""What an object of ComfyUI is wrapped in to carry techniques, the technique, and further outputs of the node."""


_OUTPUTS = {kind.io_type: kind.Output for kind in (io.Model, io.Vae, io.ControlNet)}


class PacelineNode(io.ComfyNode):
    """A node of this pack."""

    @classmethod
    def schema(cls, title: str, description: str, search: str = "", **more: Any) -> io.Schema:
        """Return the schema of a node with what all nodes of this pack have in common.

        ``search``: what else people look for it by, with commas between. Nodes are not idempotent: a cached result of
        another node would report to that one. ComfyUI asks for schemas at every page load, so they look at no device.
        """
        common = {"category": "Paceline", "hidden": [io.Hidden.unique_id], "not_idempotent": True}
        common |= {"search_aliases": search.split(", ")} if search else {}
        return io.Schema(cls.__name__, title, description=description, **common | more)

    @classmethod
    def node_id(cls) -> str | None:
        """Return the node's id in the workflow; None when it is called from Python, outside of one."""
        return getattr(cls.hidden, "unique_id", None)

    @classmethod
    def announce(cls, summary: Summary) -> None:
        announce(cls.node_id(), summary, cls.define_schema().display_name or "Paceline")


class OptimizingNode(PacelineNode):
    """A node that changes what it is given, its first input and first output, and hands it on where it cannot."""

    stays_strict = False
    """Whether ``apply`` is told of ``strict`` too, so that what fails later stops the run."""

    @classmethod
    def schema(cls, title: str, description: str, search: str = "", **more: Any) -> io.Schema:
        strict = io.Boolean.Input(
            "strict",
            default=False,
            optional=True,
            advanced=True,
            tooltip="Off: where the node can do nothing, it hands on its inputs unchanged and says why. On: it stops "
            "with an error.",
        )
        return super().schema(title, description, search, **more | {"inputs": [*more["inputs"], strict]})

    @classmethod
    def execute(cls, strict: bool = False, **inputs: Any) -> io.NodeOutput:
        """Apply the node; on `CannotHelp`, hand on what it was given, unless ``strict`` or the error must be mended."""
        try:
            return cls.apply(**inputs, **({"strict": strict} if cls.stays_strict else {}))
        except CannotHelp as error:
            if strict or error.must_be_mended:
                raise
            return cls.pass_through(error, inputs)

    @classmethod
    @abstractmethod
    def apply(cls, *args: Any, **inputs: Any) -> io.NodeOutput:
        """Return the node's output for its inputs."""

    @staticmethod
    def refused(error: CannotHelp) -> Summary:
        """Return the summary of a node that can do nothing."""
        headline = phrase("{outcome}: {brief}", outcome=error.outcome, brief=error.brief)
        return Summary("inactive", headline, details=(error.problem, *filter(None, [error.remedy])))

    @classmethod
    def pass_through(cls, error: CannotHelp, inputs: Mapping[str, Any]) -> io.NodeOutput:
        said = cls.refused(error)
        cls.announce(said)
        schema, text = cls.define_schema(), f"{said.headline}. {error}"
        given = {put.get_io_type(): inputs.get(put.id) for put in reversed(schema.inputs)}  # the first of a type counts
        texts = {io.String.io_type: text}
        return io.NodeOutput(*((given | texts).get(put.get_io_type()) for put in schema.outputs), ui={"text": (text,)})


class TechniqueNode(OptimizingNode):
    """A node that attaches one technique. A recipe attaches it without running the node: see ``apply_recipe.py``."""

    @classmethod
    def schema(cls, title: str, description: str, search: str = "", **more: Any) -> io.Schema:
        first = _OUTPUTS[more["inputs"][0].get_io_type()]()
        return super().schema(title, description, search, **more | {"outputs": [first, *more.get("outputs", ())]})

    @classmethod
    @abstractmethod
    def technique(cls, *args: Any, **inputs: Any) -> Made:
        """Return the technique for the node's inputs, behind what it goes on."""

    @classmethod
    def apply(cls, **inputs: Any) -> io.NodeOutput:
        target, technique, *others = cls.technique(**inputs)
        return io.NodeOutput(attach_for(cls.node_id(), target, technique), *others)


def setting_input(owner: type[Settings], name: str, tooltip: str, **options: Any) -> io.Input:
    """Return the input for the field ``name`` of the settings ``owner``.

    ``options`` go before what the field says: ``id`` for an input of another name, ``options`` or ``max`` for less.
    """
    found = setting(owner, name)
    limits, default = found.metadata, found.default
    given: dict[str, Any] = {"id": name, "default": default, "tooltip": tooltip}
    if "choices" in limits:
        choices = [str(value) for value in limits["choices"]]
        return io.Combo.Input(**given | {"options": choices} | options)
    if isinstance(default, bool):
        return io.Boolean.Input(**given | options)
    if isinstance(default, str):
        return io.String.Input(**given | options)
    given |= {"min": limits["minimum"], "max": limits["maximum"]}
    if isinstance(default, int):
        return io.Int.Input(**given | options)
    return io.Float.Input(**given | {"step": 0.01} | options)
