"""What our nodes can say before a run: from the file that a model comes from, the device and the workflow.

Nothing is computed on the device, and where it is not known what a node gets, nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..optimizers.core.activity import Summary
from ..optimizers.core.errors import CannotHelp, InvalidSetting
from ..optimizers.core.phrases import phrase
from ..optimizers.in_comfyui.comfy_attention import nothing_before
from ..optimizers.in_comfyui.comfy_int8 import refuse_quantised
from ..optimizers.in_comfyui.compilation.comfy_env import cache_folder
from ..optimizers.in_comfyui.run.reporting import Payload, summary_payload
from ..optimizers.step_reuse.reuse_settings import FEWEST_STEPS
from .apply_recipe import Nodes
from .comfyui.machine import host_device
from .faster.kept_runs import KeptRuns
from .faster.plan import network_before
from .faster.same_work import facts_here
from .faster.workflow import ModelLink, Workflow

BEFORE = "/paceline/before"

_SHORTEST = 1.0
"""Seconds of compiling below which nobody waits for it."""


def before_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return ``BeforeRun`` in web/js/payloads.d.ts for ``{"prompt": ...}``; `InvalidSetting` if that is no workflow."""
    workflow = Workflow.read(sent.get("prompt") if isinstance(sent, dict) else None)
    found = {id: _known(workflow, id, nodes) for id in workflow if workflow.type(id) in _ASKED}
    titles = {id: nodes[workflow.type(id)].define_schema().display_name for id in found}
    return {"nodes": {id: summary_payload(one, titles[id]) for id, one in found.items() if one is not None}}


def _known(workflow: Workflow, id: str, nodes: Nodes) -> Summary | None:
    behind = [link for link in workflow.model_links if id in link.upstream]
    way = behind[0].upstream if behind else ()
    network = network_before(workflow, way[way.index(id) + 1 :] if behind else ())
    inputs = {name: workflow.known(value) for name, value in workflow.inputs(id).items() if name != "strict"}
    if network is None or None in [value for name, value in inputs.items() if name != "model"]:
        return None
    model, formats = network
    try:
        return _ASKED[workflow.type(id)](nodes[workflow.type(id)], {**inputs, "model": model}, behind, formats)
    except CannotHelp as error:
        refused: Summary = nodes[workflow.type(id)].refused(error)
        return refused
    except (InvalidSetting, TypeError):  # the run says it
        return None


def _by_structure(node: Any, inputs: Mapping[str, Any], *_: Any) -> None:
    node.technique(**inputs)  # which reads the network, and raises what is known


def _attention(_node: Any, inputs: Mapping[str, Any], *_: Any) -> Summary | None:
    said = nothing_before(inputs["model"], str(inputs.get("backend")))
    return Summary("inactive", said) if said else None


def _compiling(_node: Any, inputs: Mapping[str, Any], *_: Any) -> Summary | None:
    if host_device().type == "cpu":
        return Summary("waiting", phrase("gains little on a processor, and compiles for minutes first"))
    family, now, code = type(inputs["model"].model).__name__, facts_here(), cache_folder()
    runs = [one for one in KeptRuns().read() if one.about.get("family") == family]
    runs = [one for one in runs if one.facts.get("device") == now["device"]]
    again = [one.seconds.get("compiling", 0.0) for one in runs if one.facts == now]
    again = [seconds for seconds in again if seconds > _SHORTEST][1:]
    if again and code is not None and code.size():
        return Summary("waiting", phrase("compiled before: {seconds:.0f} s", seconds=again[-1]))
    longest = max((one.seconds.get("compiling", 0.0) for one in runs), default=0.0)
    took = phrase("compiling took up to {seconds:.0f} s here, once", seconds=longest)
    return Summary("waiting", took) if longest > _SHORTEST else None


def _int8(_node: Any, inputs: Mapping[str, Any], _behind: Any, formats: frozenset[str]) -> None:
    refuse_quantised(inputs["model"], formats)


def _steps(_node: Any, _inputs: Mapping[str, Any], behind: Sequence[ModelLink], *_: Any) -> Summary | None:
    counts = [link.steps for link in behind]
    steps = max((count for count in counts if count is not None), default=FEWEST_STEPS)
    if steps >= FEWEST_STEPS or None in counts:
        return None
    few = phrase("{count} {count|step is|steps are} too few to skip any", count=steps)
    return Summary("inactive", few)


_ASKED: Mapping[str, Callable[..., Summary | None]] = {
    "PacelineApplyToMe": _by_structure,
    "PacelineFuseQKV": _by_structure,
    "PacelineSetAttentionProcessor": _attention,
    "PacelineCompileUNet": _compiling,
    "PacelineQuantizeInt8": _int8,
    "PacelineReuseSteps": _steps,
}
"""How each node that can know something is asked: it says so, raises what the run would raise, or says nothing."""
