"""Names that Python and ``web/js`` share: events, routes, presets; and which page is told."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from comfy_host.paths import ROOT

SCRIPTS = ROOT / "web" / "js"


@pytest.mark.usefixtures("comfy")
def test_events_and_routes_have_the_same_names():
    from paceline.optimizers.in_comfyui.compilation.comfy_env import COMPILE_EVENT
    from paceline.optimizers.in_comfyui.run import reporting
    from paceline.service import before_run, outcomes, routes
    from paceline.service.faster import job_store
    from paceline.service.sweep.run_sweep import SWEEP_EVENT

    assert ours("faster.js") == {job_store.FASTER}
    assert ours("before.js") == {before_run.BEFORE}
    assert ours("server.js") == {outcomes.RUN, outcomes.SAMPLINGS}
    assert ours("outcomes.js") == {outcomes.OUTCOMES}
    assert ours("events.js") == {reporting.ACTIVITY_EVENT, COMPILE_EVENT, SWEEP_EVENT}
    assert ours("cache.js") == {routes.PATH}


def ours(script: str) -> set[str]:
    """Return the names of our events and routes in a script."""
    source = next(SCRIPTS.rglob(script)).read_text(encoding="utf-8")
    return set(re.findall(r'"((?:paceline\.|/paceline/)\w+)"', source))


@pytest.mark.usefixtures("comfy")
def test_a_preset_switches_off_all_inputs_that_it_sets():
    from paceline.nodes.apply_tome import PacelineApplyToMe
    from paceline.optimizers.token_merging.tome_settings import PRESETS

    source = next(SCRIPTS.rglob("inputs.js")).read_text(encoding="utf-8")
    listed = re.search(r"PRESET_SETS = \[(.*)\]", source)
    inputs = {entry.id for entry in PacelineApplyToMe.define_schema().inputs}
    assert listed and set(re.findall(r"\w+", listed[1])) == inputs & set().union(*PRESETS.values())


def test_a_prompt_without_a_page_tells_no_page(page_server):
    from paceline.optimizers.core.activity import Summary
    from paceline.optimizers.in_comfyui.run import reporting

    reporting.announce("7", Summary("active", "well"))
    assert [(payload["node"], payload["prompt_id"], client) for _, payload, client in page_server.sent] == [
        ("7", "a prompt", "a page")
    ]
    page_server.client_id = None  # as after a prompt that a script has sent; ComfyUI would tell every page
    reporting.announce("7", Summary("active", "well"))
    assert len(page_server.sent) == 1


@pytest.mark.usefixtures("comfy")
def test_a_node_whose_work_a_later_one_replaces_is_told(page_server):
    from paceline.optimizers.in_comfyui.run.comfy_technique import attach_for

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
