"""All 120 orders of five nodes give one picture, and it is the one of the canonical order.

Techniques install in their own order, whatever that of the nodes was. So the sets are equal bit for bit; only what is
attached last differs, and it must not matter.
"""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from cases import often
from comfy_host import checkpoints
from distances import relative

FIVE = ("tome", "attention", "compile", "int8", "fuse")


@pytest.fixture(scope="module")
def small():
    """A model of its own: two blocks, so that compiling is quick, on which nobody else leaves anything."""
    return checkpoints.smallest_unet(width=64, context=48)


@pytest.fixture(scope="module")
def nodes(studio):
    compile_settings = {"backend": "eager", "fullgraph": True, "on_error": "raise"}
    return {
        "tome": lambda model: studio.tome(model),
        "attention": lambda model: studio.attention(model, "sdpa_math"),
        "compile": lambda model: studio.run("PacelineCompileUNet", model=model, **compile_settings),
        "int8": lambda model: studio.run("PacelineQuantizeInt8", model=model, include="attn, ff"),
        "fuse": lambda model: studio.run("PacelineFuseQKV", model=model),
    }


@pytest.fixture(scope="module")
def draw(studio, small, nodes):
    def run(order):
        model = small
        for name in order:
            model = nodes[name](model)
        return model, studio.sample(model, steps=1)

    return run


def kinds(model):
    from paceline.optimizers.hosts.comfyui.model import stack_of

    return [technique.kind for technique in stack_of(model).techniques]


@pytest.fixture(scope="module")
def canonical(draw):
    return draw(("int8", "fuse", "attention", "tome", "compile"))


def test_all_orders_give_one_picture(studio, draw, canonical, small):
    """Traced anew for each order this would take ten minutes: all are run with torch.compile's functions in place but
    running what they were made of, and five orders, each node first and each node last, for good.
    """
    plain = studio.sample(small, steps=1)
    model, expected = canonical
    assert relative(expected, plain) > 1e-3  # together they do something
    for order in permutations(FIVE):
        with torch.compiler.set_stance("force_eager"):
            ordered, found = draw(order)
        assert kinds(ordered) == kinds(model), order
        assert torch.equal(found, expected), order
    assert torch.equal(studio.sample(small, steps=1), plain)


def test_steps_are_left_out_wherever_the_node_stands(studio, small, nodes):
    """One step, as above, leaves nothing to reuse; so this needs more of them, and fewer orders."""
    loose = {"budget": 1.0, "forecast": "hold", "reuse_forecast": True, "reuse_guidance": False}
    drawn = []
    with torch.compiler.set_stance("force_eager"):
        for place in (0, 2, 5):
            model = small
            for name in (*FIVE[:place], "reuse", *FIVE[place:]):
                one = nodes.get(name) or (lambda model: studio.run("PacelineReuseSteps", model=model, **loose))
                model = one(model)
            drawn.append(studio.sample(model, steps=9))
            assert "step_reuse" in kinds(model) and len(kinds(model)) == 6
            assert model.get_attachment("paceline").find("step_reuse").policy.outcome.forecast >= 2
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("turn", often([0, 2], range(5)))
def test_orders_that_are_really_compiled(studio, draw, canonical, turn):
    order = (*FIVE[turn:], *FIVE[:turn])
    ordered, found = draw(order)
    assert torch.equal(found, canonical[1]), order
    assert "not active" not in studio.report(ordered)
    torch._dynamo.reset()


@pytest.mark.parametrize("left_out", FIVE)
def test_each_of_the_five_has_a_share_in_it(studio, draw, canonical, left_out):
    """Without one of them another picture comes out, or the same to rounding where that is what it promises."""
    order = [name for name in ("int8", "fuse", "attention", "tome", "compile") if name != left_out]
    with torch.compiler.set_stance("force_eager"):  # the same bits, as above
        model, found = draw(order)
    assert len(kinds(model)) == 4
    difference = relative(found, canonical[1])
    if left_out in ("tome", "int8"):
        assert difference > 1e-4
    else:
        assert difference < 0.02  # rounding, which int8 can turn into steps of its own
    for title in ("Apply ToMe", "Set Attention Processor", "Compile UNet", "Quantize int8", "Fuse QKV"):
        assert title in studio.report(canonical[0])
    report = studio.report(canonical[0])
    assert "not active" not in report, report
