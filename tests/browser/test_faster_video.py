""" "Make this workflow faster" with one of ComfyUI's templates: a video with sound, by two samplers."""

from __future__ import annotations

from collections.abc import Iterator

import needs
import pytest
from browser.one_click import choose, graph, open_dialog, press, said
from browser.page import Page, opened
from comfy_host import template_runs, templates

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
if not templates.installed():
    needs.missing("ComfyUI's templates are not installed: pip install comfyui-workflow-templates-json")


@pytest.fixture(scope="module")
def host() -> Iterator[template_runs.Host]:
    with template_runs.host() as running:
        yield running


@pytest.fixture
def page(host: template_runs.Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(host.server, lambda: tmp_path_factory.mktemp("browser")) as shown:
        yield shown


def test_a_video_with_sound_from_the_question_to_what_is_kept(host: template_runs.Host, page: Page):
    template = next(one for one in templates.most_used(80) if one.name == "video_ltx2_t2v")
    prompt = host.prompt_of(template)
    page.script("await app.loadApiJson(args[0], 'video')", prompt)
    page.settle()
    before = graph(page)
    open_dialog(page)
    choose(page, "fast")
    page.wait(lambda: "Set Attention Processor" in said(page), "what is looked at")
    press(page, "Run once and look")
    count = "return document.querySelectorAll('.paceline-offer-list label').length"
    nothing = ("Nothing is expected", "is not clear from so few")
    page.wait(lambda: page.script(count) or any(each in said(page) for each in nothing), "answer", 200)
    assert said(page).startswith("This run took ")
    page.screenshot("faster_video")
    if page.script(count):  # small networks with random weights: what is faster depends on the machine
        press(page, "Keep")
        page.wait(lambda: any(type.startswith("Paceline") for type in graph(page)[0] - before[0]), "new nodes")
        page.script("await app.extensionManager.command.execute('Comfy.Undo')")
        page.settle()
    assert graph(page) == before
