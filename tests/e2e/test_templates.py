"""ComfyUI's own most used templates: what *Make this workflow faster* puts into them, what it does, and what it leaves.

Their files are replaced by small random networks of the same classes, and everything is drawn at 128 x 128 pixels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import needs
import pytest
from comfy_host import template_runs, templates
from made_examples import MADE, saved
from paceline.service.faster.tune import Server, tune

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
if not templates.installed():
    needs.missing("ComfyUI's templates are not installed: pip install comfyui-workflow-templates-json")

ALL = templates.most_used(80)


@pytest.fixture(scope="module")
def host() -> Iterator[template_runs.Host]:
    with template_runs.host() as running:
        yield running


@pytest.mark.parametrize("template", ALL, ids=lambda template: template.name)
def test_a_template_is_drawn_plain_faster_and_plain_again(
    host: template_runs.Host, template: templates.Template, capsys: pytest.CaptureFixture[str]
):
    if why_not := host.why_not(template):
        pytest.skip(why_not)
    prompt = host.prompt_of(template)
    plain = host.draw(prompt)
    assert template_runs.latents(plain), "nothing was sampled"
    made = host.faster(prompt)

    # The model of each sampler comes through nodes of ours, all else is as it was.
    inserted = made.keys() - prompt.keys()
    before = {id: {**node, "inputs": dict(node["inputs"])} for id, node in made.items() if id not in inserted}
    for node, name in host.samplers(prompt):
        chain = template_runs.chain(made, made[node]["inputs"][name], inserted)
        assert chain
        before[node]["inputs"][name] = made[chain[0]]["inputs"]["model"]
    assert before == prompt

    # What the nodes say of themselves is true: where none is active, each bit is as before.
    drawn = host.draw(made)
    said = template_runs.reports(drawn, made)
    assert said.keys() == inserted
    merging = [one for one in said.values() if one.node == "PacelineApplyToMe"]
    for one in merging:
        assert one.state == "active" or one.headline.endswith("it is for UNets only"), one
        assert one.state != "active" or one.counts["blocks"] == one.counts["all_blocks"] > 0, one
    active = any(one.state in ("active", "partly") for one in said.values())
    assert (template_runs.latents(drawn) != template_runs.latents(plain)) == active

    again = host.draw(prompt, number=1)
    assert template_runs.latents(again) == template_runs.latents(plain)

    # The run that is watched is the plain one, and the answer keeps to its promise: nodes on wires, and no more.
    capsys.readouterr()
    answered = tune(Server(host.server.base_url), prompt, "fast", False)
    answer = capsys.readouterr().out.partition("This run took ")[2].splitlines()
    assert answer[-1].startswith("kept ") or re.fullmatch(r"  .+: \S+ s\. .+", answer[1]), "the longest part, and why"
    assert {id: node["class_type"] for id, node in prompt.items()}.items() <= {
        id: node["class_type"] for id, node in answered.items()
    }.items()


@pytest.mark.parametrize("name", MADE)
def test_an_example_made_from_a_template_is_drawn_and_each_node_says_what_it_did(host: template_runs.Host, name: str):
    prompt = host.small_prompt(saved(name))
    ours = {id: node for id, node in prompt.items() if node["class_type"].startswith("Paceline")}
    for node in ours.values():
        if node["class_type"] == "PacelineCompileUNet":
            node["inputs"]["backend"] = "eager"  # what is compiled is only traced
    drawn = host.draw(prompt)
    assert template_runs.latents(drawn), "nothing was sampled"
    said = template_runs.reports(drawn, prompt)
    assert said.keys() == ours.keys()
    wrong = [one for one in said.values() if one.state not in ("active", "partly", "inactive")]
    assert wrong == []
