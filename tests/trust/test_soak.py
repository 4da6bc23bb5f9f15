"""Some clients at once for a moment, and that the checks notice. ``make soak`` has 32 of them for half an hour."""

from __future__ import annotations

import pytest
from needs import missing

pytestmark = pytest.mark.slow


def test_clients_at_once_are_all_answered_and_none_sees_another(server):
    from soak import soak

    done = soak(server, clients=3, minutes=0.1, most=3)
    assert not done.problems
    assert done.answers["right"] >= 2 and len(done.memory) >= 1


@pytest.mark.thorough
def test_tabs_beside_clients_show_their_own_runs_and_what_is_not_theirs_is_noticed(server):
    from soak import soak
    from tabs import browser_tabs

    with browser_tabs(server) as tabs:
        if tabs is None:
            missing("there is no browser: `make setup BROWSER=1` installs one, or set CHROME and CHROMEDRIVER")
        assert not soak(server, clients=2, minutes=0.3, most=20, tabs=tabs).problems
        found = tabs.found()
        assert found["wrong"] == [] and min(found["runs"]) >= 1
        tab = tabs.tabs[0]
        tabs.page.driver.switch_to.window(tab.handle)
        tabs.page.script(
            """
            const text = document.querySelector(".paceline-badge-text"), before = text.textContent;
            text.textContent = "active in 99 of 99";
            await new Promise((next) => setTimeout(next, 300));
            text.textContent = before;
            app.api.dispatchEvent(new CustomEvent("paceline.activity", { detail: { node: "1", prompt_id: "other" } }));
            console.error("paceline: planted");
            """
        )
        tabs.check(tab)
        assert len(tabs.problems) == 3, tabs.problems
        assert all(sign in str(tabs.problems) for sign in ("99 of 99", "told of other", "planted"))


def test_growth_is_noticed():
    from slopes import growing
    from soak import grows

    flat = [{"modules": 100, "tensors": 500, "resident_kb": 10**6 + number % 3} for number in range(40)]
    assert grows(flat) == []
    leaking = [{**sample, "modules": 100 + number} for number, sample in enumerate(flat)]
    assert len(grows(leaking)) == 1 and "modules" in grows(leaking)[0]
    assert growing(leaking, ["modules"], beside=leaking) == []
    assert len(growing(leaking, ["modules"], beside=flat)) == 1


def test_a_leak_is_told_from_a_model_that_comfyui_has_lost():
    """A clone of a clone in a circle, as after an error, with no node of ours; then a network without its MODEL."""
    from comfy_host import checkpoints, in_process

    in_process.bootstrap()
    import gc

    import comfy.model_management as management
    from trust_nodes.leaks import leaks

    management.unload_all_models()
    first = checkpoints.smallest_unet(0)
    clone = first.clone().clone()
    management.load_models_gpu([clone])
    circle = [clone]
    circle.append(circle)
    del clone, circle
    gc.collect()
    assert leaks() == {"lost_by_comfyui": 1, "leaked": 0}
    assert leaks() == {"lost_by_comfyui": 0, "leaked": 0}
    management.load_models_gpu([first])
    held = first.model
    del first
    gc.collect()
    assert leaks() == {"lost_by_comfyui": 0, "leaked": 1}
    del held
