"""What a workflow and ComfyUI have in themselves that would make it faster, as far as that is known for certain."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.phrases import Phrase, phrase
from ..workbench.comfyui.machine import loaded_patchers
from .workflow import Workflow, find_model_links, is_switch


def levers(workflow: Workflow) -> list[Phrase]:
    """Return what can be changed in the workflow, and what is known of the models that its last run has left loaded."""
    return [*_fewer_steps(workflow), *_of_loaded_models()]


def _fewer_steps(workflow: Workflow) -> Iterator[Phrase]:
    """Yield the switches by which fewer steps would be sampled: each is turned, and the workflow is looked at again."""
    now = _steps(workflow)
    for id, name, value in _turnable(workflow):
        turned = _steps(workflow.edited({(id, name): not value}))
        if now is not None and turned is not None and turned < now:
            yield phrase(
                "This workflow has a switch of its own: {node} takes {fewer} steps in place of {steps} when it is "
                "{on}.",
                node=workflow.title(id),
                fewer=turned,
                steps=now,
                on=phrase("off") if value else phrase("on"),
            )


def _turnable(workflow: Workflow) -> Iterator[tuple[str, str, bool]]:
    """Yield the values that decide a switch: its own, or one of a node that gives nothing but a boolean."""
    for id in workflow:
        if not is_switch(workflow, id) and set(workflow.gives(id)) != {"BOOLEAN"}:
            continue
        for name, value in workflow.inputs(id).items():
            if isinstance(value, bool):
                yield id, name, value


def _steps(workflow: Workflow) -> int | None:
    """Return the steps of all samplers; None where those of one are not known before a run."""
    steps = [link.steps for link in find_model_links(workflow)]
    return sum(one for one in steps if one is not None) if steps and None not in steps else None


def _of_loaded_models() -> Iterator[Phrase]:
    for patcher in loaded_patchers():
        name = type(patcher.model).__name__
        applied = patcher.lowvram_patch_counter()
        if applied:
            yield phrase(
                "{model} does not fit the device whole, so its LoRAs are applied anew each time in {count} layers. "
                "Save Checkpoint merges them once.",
                model=name,
                count=applied,
            )
