"""What the page makes of the server's messages: progress, fallbacks, and messages that are not for it."""

from __future__ import annotations

from typing import Any

import pytest
from browser.page import ATTENTION, CANVAS, ESCAPE, SAMPLER, TOME, VUE, Page

pytestmark = pytest.mark.usefixtures("quiet_console", "ran")


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_progress_and_failure_are_shown(page: Page, renderer: str):
    page.use(renderer)
    page.show_node(TOME)
    prompt = begin_again(page)
    compiling = {
        "node": str(TOME), "prompt_id": prompt, "phase": "tracing", "headline": "compiling 00:42 · graph 3",
        "seconds": 42.3, "graph": 3, "expected_seconds": 84.6,
    }  # fmt: skip
    fallback = {
        "node": str(ATTENTION), "prompt_id": prompt, "state": "partly", "title": "Set Attention Processor",
        "headline": "flash in 3 of 42 attention calls", "counts": {"calls": 42, "fallbacks": 39},
        "details": ["39 x fallback: head size 40"],
    }  # fmt: skip
    tell(page, "paceline.compile", compiling)
    tell(page, "paceline.activity", fallback)
    page.wait(lambda: page.badges()[str(ATTENTION)].startswith("partly"), "fallback")
    page.settle()
    page.screenshot(f"progress_{renderer}")
    assert page.badges()[str(TOME)] == "working: ↻compiling 00:42 · graph 3"
    assert page.badges()[str(ATTENTION)] == "partly: ◐flash in 3 of 42 attention calls · 39 fallbacks"
    assert bar(page, TOME) == {"hidden": False, "position": 0.5}
    assert bar(page, ATTENTION)["hidden"]
    # The tooltip has every number by its name, and goes on with the badge.
    page.script("args[0].focus()", page.badge(TOME))
    numbers = "graph: 3, seconds: 42, expected seconds: 85"
    page.wait(lambda: numbers in page.text(".paceline-tooltip"), "numbers by their names")
    # Nobody knows how long it takes, or it takes longer than the last time: the bar only moves.
    for expected in (None, 40.0):
        tell(page, "paceline.compile", compiling | {"expected_seconds": expected, "headline": f"not {expected}"})
        page.wait(lambda told=f"not {expected}": told in page.badges()[str(TOME)], "progress")
        assert bar(page, TOME) == {"hidden": False, "position": -1}
        assert f"not {expected}" in page.text(".paceline-tooltip")
    page.screenshot(f"progress_unknown_{renderer}")
    page.press(ESCAPE)
    tell(page, "execution_interrupted", {"prompt_id": prompt})
    page.wait(lambda: page.badges()[str(TOME)] == "cancelled: ×cancelled", "end of the progress")
    # A message that comes late does not bring it back.
    tell(page, "paceline.compile", compiling)
    page.settle()
    assert page.badges()[str(TOME)] == "cancelled: ×cancelled"


@pytest.mark.thorough
def test_a_real_compilation_shows_how_far_it_is(page: Page):
    """The demo's small model, compiled by torch without code for the machine, which takes a few seconds."""
    page.use(VUE)
    page.empty()
    node = page.script(
        """
        const make = (type, values, inputs) => {
          const node = LiteGraph.createNode(type);
          app.graph.add(node);
          node.pos = [330 * app.graph.nodes.length, 0];
          for (const [name, value] of Object.entries(values)) node.widgets.find((w) => w.name === name).value = value;
          for (const [name, [from, slot]] of Object.entries(inputs))
            from.connect(slot, node, node.inputs.findIndex((input) => input.name === name));
          return node;
        };
        const loader = make("EmojiModelLoader", {}, {});
        const text = make("EmojiTextEncode", { text: "penguin" }, { text_encoder: [loader, 1] });
        const latent = make("EmojiEmptyLatent", {}, {});
        const compile = make("PacelineCompileUNet", { backend: "aot_eager" }, { model: [loader, 0] });
        const conditioning = { positive: [text, 0], negative: [text, 0], latent_image: [latent, 0] };
        const sampler = make("KSampler", { steps: 2 }, { model: [compile, 0], ...conditioning });
        const image = make("EmojiDecode", {}, { samples: [sampler, 0] });
        make("PreviewImage", {}, { images: [image, 0] });
        window.seen = [];
        app.api.addEventListener("paceline.compile", () => setTimeout(() => {
          const badge = compile.widgets.find(({ name }) => name === "$$paceline-badge")?.element;
          if (badge) window.seen.push([badge.textContent, badge.querySelector("progress").hidden]);
        }));
        return compile.id;
        """
    )
    page.show_node(node)
    assert page.run() == "success"
    seen = page.script("return window.seen")
    assert any(text.startswith("↻compiling 00:0") and not hidden for text, hidden in seen), seen
    assert seen[-1][1]  # it is compiled, the run goes on, and the bar is gone
    assert page.badges()[str(node)].startswith("active: ●compiled")
    page.screenshot("badge_compiled")


def test_messages_of_other_prompts_are_not_shown(page: Page):
    prompt = begin_again(page)
    before = page.badges()
    activity = {"state": "active", "title": "Apply ToMe", "headline": "somebody else", "counts": {}, "details": []}
    other = "11111111-2222-4333-8444-555555555555"
    tell(page, "paceline.activity", activity | {"node": str(TOME), "prompt_id": other})
    tell(page, "paceline.activity", activity | {"node": str(ATTENTION), "prompt_id": prompt, "headline": "this page"})
    page.wait(lambda: page.badges()[str(ATTENTION)] == "active: ●this page", "own message")
    assert page.badges()[str(TOME)] == before[str(TOME)]
    tell(page, "execution_interrupted", {"prompt_id": prompt})


def test_a_prompt_of_nobody_changes_no_badge(page: Page):
    """What a script sends to the server without naming a page, with the same numbers of nodes."""
    before = page.badges()
    prompt = page.script(
        """
        const { output } = await app.graphToPrompt();
        output[args[0]].inputs.ratio = 0.25;
        output[args[1]].inputs.seed = 987654321;
        const answer = await app.api.fetchApi("/prompt", { method: "POST", body: JSON.stringify({ prompt: output }) });
        return (await answer.json()).prompt_id;
        """,
        str(TOME),
        str(SAMPLER),
    )
    done = "return (await (await app.api.fetchApi('/history/' + args[0])).json())[args[0]]?.status?.status_str"
    assert page.wait(lambda: page.script(done, prompt), "end of the prompt", 120) == "success"
    page.settle()
    assert page.badges() == before


def test_a_page_that_is_loaded_during_a_run_shows_the_rest_of_it(page: Page):
    prompt = begin_again(page)
    tell(page, "execution_interrupted", {"prompt_id": prompt})
    page.reload()
    page.wait(lambda: page.script("return !!app.graph.getNodeById(args[0])", TOME), "workflow of last time")
    page.wait(lambda: page.badges().get(str(TOME), "").startswith("active"), "badge of the run so far")
    activity = {"state": "working", "title": "Apply ToMe", "headline": "half way", "counts": {}, "details": []}
    tell(page, "paceline.activity", activity | {"node": str(TOME), "prompt_id": prompt})
    page.wait(lambda: page.badges()[str(TOME)] == "working: ↻half way", "badge")
    tell(page, "execution_interrupted", {"prompt_id": prompt})
    page.wait(lambda: page.badges()[str(TOME)] == "cancelled: ×cancelled", "end of the run")


@pytest.mark.parametrize("language", ["en", "ja"])
def test_what_somebody_has_typed_is_shown_as_it_is_and_never_run(page: Page, language: str):
    """Names of nodes and models can hold markup, braces and words that JavaScript or our translations know."""
    typed = '<img src=x onerror="window.planted = 1"> {x} {count|a|b} constructor'
    nested = {"template": typed, "values": {}}
    phrase = {"template": "{x}: {name}", "values": {"x": nested, "name": "steps"}}
    said = {
        "node": str(TOME), "prompt_id": begin_again(page), "state": "active", "title": typed, "counts": {typed: 1},
        "headline": f"{typed}: steps", "details": [typed, "toString"], "phrase": phrase,
    }  # fmt: skip
    with page.language(language):
        tell(page, "paceline.activity", said)
        page.wait(lambda: page.badges()[str(TOME)].endswith(f"{typed}: steps"), "badge")
        page.script("args[0].focus()", page.badge(TOME))
        shown = page.script(
            "const tip = document.querySelector('.paceline-tooltip');"
            "return [tip.textContent, document.querySelectorAll('img[src=x]').length, window.planted ?? null]"
        )
    assert shown[0].startswith(typed) and shown[0].endswith(f"{typed}toString")
    assert shown[1:] == [0, None]
    page.press(ESCAPE)


def begin_again(page: Page) -> str:
    """Let the page believe that its last run goes on, so that it takes our messages for the run's own."""
    page.script("app.api.addEventListener('execution_start', (e) => (window.prompt_id = e.detail.prompt_id))")
    assert page.run() == "success"
    prompt = page.script("return window.prompt_id")
    tell(page, "execution_start", {"prompt_id": prompt})
    return prompt


def tell(page: Page, event: str, payload: dict[str, Any]) -> None:
    page.script("app.api.dispatchCustomEvent(args[0], args[1])", event, payload)


def bar(page: Page, node: int) -> dict[str, Any]:
    """Return the state of a badge's progress bar; its position is -1 where only that something goes on is known."""
    return page.script(
        "const { hidden, position } = args[0].querySelector('progress'); return { hidden, position }", page.badge(node)
    )
