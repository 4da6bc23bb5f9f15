"""What Python sends to the page and what ``web/js`` reads have the same keys: the interfaces in payloads.d.ts.

The type check fails where ``web/js`` reads a key that is in no interface. Here the interfaces are held against what is
sent, and every key must be read somewhere.
"""

from __future__ import annotations

import ast
import json
import re
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from comfy_host.paths import ROOT
from javascript import node
from page_server import PageServer
from update_locales import english

SCRIPTS = ROOT / "web" / "js"


@pytest.fixture(scope="module")
def interfaces() -> dict[str, dict[str, bool]]:
    """The keys of every interface, and whether ``web/js`` reads them."""
    answer = node("payload_keys.mjs")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def sent_keys(server: PageServer) -> dict[str, set[str]]:
    """Return the keys of everything that Python sends, from the functions that build it, by the interface's name."""
    from paceline.core.activity import Summary
    from paceline.optimizers.compilation.progress import Progress
    from paceline.optimizers.hosts.comfyui import reporting
    from paceline.optimizers.hosts.comfyui.compilation.comfy_env import COMPILE_EVENT, NodeObserver
    from paceline.optimizers.hosts.comfyui.weights import LOADING_EVENT
    from paceline.server import outcomes, routes
    from paceline.server.recipes import shown_steps
    from paceline.server.run_routes import run_payload
    from paceline.server.sweep_run import SWEEP_EVENT
    from paceline.workbench.recipe import Step

    reporting.announce("7", Summary("active", "well", {"calls": 1}, ("a detail",)), "a title")
    NodeObserver("7").progress(Progress("tracing", 1.0, 1))
    sweep, profile = swept(), profiled()
    loaded()
    events = [reporting.ACTIVITY_EVENT, COMPILE_EVENT, SWEEP_EVENT, LOADING_EVENT]
    assert [event for event, _, _ in server.sent] == events
    comparison = compared()
    state = offered()
    (offer,) = state["offers"]
    (step,) = shown_steps([Step("PacelineApplyToMe", {"ratio": 0.5})])
    return {
        "ActivityPayload": set(server.sent[0][1]),
        "CompilePayload": set(server.sent[1][1]),
        "NodeOutput": outputs_of_nodes(),
        "Comparison": set(comparison),
        "ComparisonFiles": {"pictures", "motion", "sounds"},
        "Control": set(comparison["fewer_steps"]) - {"kind", "speedup"},
        "Distance": set(comparison["difference"]),
        "SweepPayload": set(server.sent[2][1]),
        "LoadingPayload": set(server.sent[3][1]),
        "Sweep": set(sweep),
        "SweepCell": set(sweep["cells"][0]),
        "Profile": set(profile),
        "Step": set(step),
        "RunPayload": set(run_payload(finished_run(), "a prompt")),
        "FasterState": set(state),
        "Told": set(state["why_not"]),
        "Offer": set(offer),
        "Insert": set(offer["inserts"][0]),
        "Cache": set(routes.cache_payload()),
        "KeptRuns": set(outcomes.Outcomes().payload()),
        "EndedRun": set(outcomes.Outcomes().ended(ENDED, finished_run())),
        "Refusal": set(routes.refusal_payload("")),
    }


ENDED = {"prompt_id": "unknown", "seconds": {}, "nodes": [], "loaded": False}


def offered() -> dict[str, Any]:
    """Return what the page is told of a workflow for which something is offered."""
    from faster import PROMPT
    from paceline.nodes import NODES
    from paceline.server.faster.offers import Offer
    from paceline.server.faster.state import Case
    from paceline.server.faster.wires import find_wires
    from paceline.workbench.comfyui.workflow import Workflow
    from paceline.workbench.expectation.expect import Range
    from paceline.workbench.recipe import Step

    import_module("nodes")  # ComfyUI's: its types of nodes
    workflow, range = Workflow.read(PROMPT), Range(1.0, 1.5, 2.0)
    (wire,) = find_wires(workflow)
    chosen = ((wire, (Step("PacelineApplyToMe"),)),)
    offer = Offer("Apply ToMe", frozenset(("Apply ToMe",)), chosen, range, range, range, 1.0, once=0.0, won=1.0)
    return Case(workflow, "fast", [], NODES, offers=[offer]).answer()


def compared() -> dict[str, Any]:
    """Return what the page is shown of a comparison with a control, sound and a video."""
    import torch
    from paceline.nodes.compare_models import shown_comparison
    from paceline.workbench.comfyui.comparison.report import record
    from paceline.workbench.measurement.drawn import Decoded, Drawn, TimedRun
    from paceline.workbench.measurement.measure import MeasurePlan, measure

    def draw(side: str, seed: int, steps: int) -> Drawn:
        noise = torch.Generator().manual_seed(seed)
        pictures = torch.rand(1, 16, 16, 3, generator=noise) * (0.9 if side == "optimized" else 1.0)
        return Drawn(TimedRun(steps * (0.5 if side == "optimized" else 1.0)), show=lambda: Decoded.of(pictures))

    found = replace(measure(draw, MeasurePlan(4, 3)), about={"activity": {}})
    assert found.evidence.controls
    return shown_comparison(record(found), {})


def loaded() -> None:
    """Tell the page of weights that took a while to load."""
    from paceline.optimizers.hosts.comfyui.weights import prepare_sampling

    technique = SimpleNamespace(node_id="7", kind="attention", runs=SimpleNamespace(latest=object()))
    patcher = SimpleNamespace(
        model=None, load_device=None, model_size=lambda: 1, loaded_size=lambda: 1, is_dynamic=lambda: False
    )
    prepare_sampling([technique], lambda patcher: time.sleep(0.11), patcher)


def profiled() -> dict[str, Any]:
    """Return what the page is shown of a profile."""
    from paceline.nodes.profile import shown_profile
    from paceline.optimizers.hosts.comfyui.weights import WeightMoves
    from paceline.workbench.comfyui.profiling import Profile

    around = dict.fromkeys(("model", "device", "torch", "comfyui"), "")
    return shown_profile(Profile(0.0, (1.0,), None, 1.0, {"attention": 1.0}, WeightMoves(0.0, 0.0, 1, 1)), around)


def swept() -> dict[str, Any]:
    """Return what the page is shown of a sweep with one cell, which is sent as an event too."""
    from paceline.optimizers.hosts.comfyui.reporting import send
    from paceline.server.sweep_run import SWEEP_EVENT, sweep_payload
    from paceline.workbench.sweep.results import Result
    from paceline.workbench.sweep.storage import Storage
    from paceline.workbench.sweep.study import SweepPlan

    shown = sweep_payload(SweepPlan("a study", Storage("", "")), [Result({"ApplyToMe": "on"}, "measured", 1.5)], 2)
    send(SWEEP_EVENT, "7", {"sweep": shown})
    return shown


def finished_run() -> Any:
    """Return a server whose history has one run."""
    history = {"prompt": (0, "a prompt", {}, {}, []), "outputs": {}, "status": {"messages": []}}
    return SimpleNamespace(
        prompt_queue=SimpleNamespace(mutex=nullcontext(), currently_running={}, history={"a prompt": history})
    )


def outputs_of_nodes() -> set[str]:
    """Return the names under which nodes hand something of ours to the page, as their sources spell them."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "nodes").glob("*.py")]
    dicts = [found for tree in trees for found in ast.walk(tree) if isinstance(found, ast.Dict)]
    keys = {key.value for found in dicts for key in found.keys if isinstance(key, ast.Constant)}
    return {key for key in keys if str(key).startswith("paceline_")}


@pytest.mark.usefixtures("comfy")
def test_what_is_sent_has_the_keys_of_the_interfaces(interfaces, page_server):
    assert {name: set(keys) for name, keys in interfaces.items()} == sent_keys(page_server)


def test_every_key_is_read(interfaces):
    unread = [f"{name}.{key}" for name, keys in interfaces.items() for key, read in keys.items() if not read]
    assert unread == []


@pytest.mark.usefixtures("comfy")
def test_events_and_routes_have_the_same_names():
    from paceline.optimizers.hosts.comfyui import reporting
    from paceline.optimizers.hosts.comfyui.compilation.comfy_env import COMPILE_EVENT
    from paceline.server import routes, run_routes
    from paceline.server.faster import state
    from paceline.server.sweep_run import SWEEP_EVENT

    assert ours("faster.js") == {state.FASTER}
    assert ours("server.js") == {run_routes.RUN}
    assert ours("events.js") == {reporting.ACTIVITY_EVENT, COMPILE_EVENT, SWEEP_EVENT}
    assert ours("cache.js") == {routes.PATH}
    assert ours("sweeps.js") == {routes.PRESETS_PATH}


def ours(script: str) -> set[str]:
    """Return the names of our events and routes in a script."""
    source = (SCRIPTS / script).read_text(encoding="utf-8")
    return set(re.findall(r'"((?:paceline\.|/paceline/)\w+)"', source))


@pytest.mark.usefixtures("comfy")
def test_the_default_preset_in_the_settings_is_a_preset_of_a_node():
    from paceline.nodes.apply_tome import PacelineApplyToMe
    from paceline.nodes.optimize_preset import PacelineOptimizePreset

    inputs = [entry for node in (PacelineApplyToMe, PacelineOptimizePreset) for entry in node.define_schema().inputs]
    presets = {option for entry in inputs if entry.id == "preset" for option in entry.options}
    offered = set(english()["settings"]["Paceline_DefaultPreset"]["options"])
    assert offered - presets == {"node default"}


@pytest.mark.usefixtures("comfy")
def test_a_preset_switches_off_all_inputs_that_it_sets():
    from paceline.nodes.apply_tome import PacelineApplyToMe
    from paceline.optimizers.token_merging import PRESETS

    listed = re.search(r"PacelineApplyToMe: .*inputs: \[(.*)\]", (SCRIPTS / "ignored.js").read_text(encoding="utf-8"))
    inputs = {entry.id for entry in PacelineApplyToMe.define_schema().inputs}
    assert listed and set(re.findall(r"\w+", listed[1])) == inputs & set().union(*PRESETS.values())


def test_a_prompt_without_a_page_tells_no_page(page_server):
    from paceline.core.activity import Summary
    from paceline.optimizers.hosts.comfyui import reporting

    reporting.announce("7", Summary("active", "well"))
    assert [(payload["node"], payload["prompt_id"], client) for _, payload, client in page_server.sent] == [
        ("7", "a prompt", "a page")
    ]
    page_server.client_id = None  # as after a prompt that a script has sent; ComfyUI would tell every page
    reporting.announce("7", Summary("active", "well"))
    assert len(page_server.sent) == 1


@pytest.mark.usefixtures("comfy")
def test_a_node_whose_work_a_later_one_replaces_is_told(page_server):
    from paceline.server.recipes import attach_for

    def technique(ratio: float) -> SimpleNamespace:
        policy = SimpleNamespace(clauses=lambda: ("waiting",), describe=lambda: f"ratio {ratio}")
        return SimpleNamespace(kind="token_merging", title="Apply ToMe", node_id=None, policy=policy)

    first = technique(0.5)
    attach_for("4", SimpleNamespace(techniques=(), with_techniques=list), first)
    (attached,) = attach_for("9", SimpleNamespace(techniques=(first,), with_techniques=list), technique(0.25))
    keys = ("node", "state", "headline", "details")
    told = [tuple(payload[key] for key in keys) for _, payload, _ in page_server.sent]
    assert attached.node_id == "9"
    assert told[1] == ("4", "inactive", "replaced by Apply ToMe #9", ["ratio 0.5"])
    assert told[2] == ("9", "waiting", "waiting", ["replaces an earlier Apply ToMe (ratio 0.5)"])
