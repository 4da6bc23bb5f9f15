"""The technique of examples/technique: what each technique must pass, in one file."""

import pytest
import torch
from comfy_host.paths import ROOT


@pytest.fixture(scope="module")
def limited(studio):
    from paceline.examples.technique.in_comfyui import ExampleLimitedGuidance

    def apply(model, stop):
        return ExampleLimitedGuidance.execute(model=model, stop=stop, strict=True).result[0]

    return apply


def test_a_setting_that_changes_nothing_draws_the_same_bits(studio, limited):
    model = limited(studio.model, 0.0)
    assert torch.equal(studio.sample(model, steps=4), studio.sample(studio.model, steps=4))
    assert "no negative pass was left out" in studio.report(model)


def test_below_the_level_the_negative_pass_is_left_out(studio, limited):
    passes = [len(options["cond_or_uncond"]) for options in studio.options_seen(limited(studio.model, 0.5), steps=4)]
    assert passes == sorted(passes, reverse=True) and {*passes} == {1, 2}
    model = limited(studio.model, 0.5)
    guided = studio.sample(studio.model, steps=4)
    assert not torch.equal(studio.sample(model, steps=4), guided)
    assert f"no negative pass in {passes.count(1)} of 4 calls" in studio.report(model)
    assert torch.equal(studio.sample(studio.model, steps=4), guided), "the guider is as it was"


def test_where_it_can_do_nothing_it_says_so(studio, limited):
    model = limited(studio.model, 1.0)
    assert torch.equal(studio.sample(model, steps=2, cfg=1.0), studio.sample(studio.model, steps=2, cfg=1.0))
    assert "no negative pass was left out" in studio.report(model)


def test_the_order_of_nodes_does_not_matter(studio, limited):
    first, last = limited(studio.tome(studio.model), 0.5), studio.tome(limited(studio.model, 0.5))
    assert torch.equal(studio.sample(first, steps=4), studio.sample(last, steps=4))


def test_its_page_names_its_inputs():
    page = (ROOT / "examples" / "technique" / "en.md").read_text(encoding="utf-8")
    from paceline.examples.technique.in_comfyui import ExampleLimitedGuidance

    inputs = [put.id for put in ExampleLimitedGuidance.define_schema().inputs if put.id not in ("model", "strict")]
    assert all(f"| `{name}` |" in page for name in inputs)
