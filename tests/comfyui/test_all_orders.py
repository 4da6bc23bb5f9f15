"""Seven nodes in any order give one picture, and it is the one of the canonical order.

Techniques install in their own order, whatever that of the nodes was. So the sets are equal bit for bit; only what is
attached last differs, and it must not matter.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from cases import often
from comfy_host import checkpoints
from distances import relative
from model_changes import lora_for
from reusing import reuse

CANONICAL = ("lora", "precision", "int8", "fuse", "attention", "tome", "compile")
TURNS = [CANONICAL[turn:] + CANONICAL[:turn] for turn in range(len(CANONICAL))]


@pytest.fixture(scope="module")
def small():
    """A model of its own: two blocks, so that compiling is quick, on which nobody else leaves anything."""
    return checkpoints.smallest_unet(width=64, context=48)


@pytest.fixture(scope="module")
def nodes(studio):
    compile_settings = {"backend": "eager", "strict": True}
    return {
        "tome": lambda model: studio.tome(model),
        "attention": lambda model: studio.attention(model, "sdpa_math"),
        "compile": lambda model: studio.run("PacelineCompileUNet", model=model, **compile_settings),
        "int8": lambda model: studio.run("PacelineQuantizeInt8", model=model, include="attn, ff"),
        "fuse": lambda model: studio.run("PacelineFuseQKV", model=model),
        "lora": lora_for,
        "precision": lambda model: studio.run("PacelineModelPrecision", model=model, dtype="bf16"),
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
    from paceline.optimizers.in_comfyui.run.stack import stack_of

    return [technique.kind for technique in stack_of(model).techniques]


@pytest.fixture(scope="module")
def canonical(draw):
    return draw(CANONICAL)


def same_in(orders, draw, expected):
    """Draw in each order. As tracing takes long, what was compiled runs what it was made of."""
    model, picture = expected
    for order in orders:
        with torch.compiler.set_stance("force_eager"):
            ordered, found = draw(order)
        assert kinds(ordered) == kinds(model), order
        assert torch.equal(found, picture), order


@pytest.mark.parametrize("orders", often([[CANONICAL[::-1], TURNS[3]]], [[CANONICAL[::-1], TURNS[3]], TURNS]))
def test_each_pair_both_ways_around_gives_one_picture(studio, draw, canonical, small, orders):
    plain = studio.sample(small, steps=1)
    assert relative(canonical[1], plain) > 1e-3  # together they do something
    same_in(orders, draw, canonical)
    assert torch.equal(studio.sample(small, steps=1), plain)


def test_steps_are_left_out_wherever_the_node_stands(studio, small, nodes):
    """One step, as above, leaves nothing to reuse; so this needs more of them, and fewer orders."""
    nodes = {**nodes, "reuse": partial(reuse, studio)}
    drawn = []
    with torch.compiler.set_stance("force_eager"):
        for place in (0, len(CANONICAL)):
            model = small
            for name in (*CANONICAL[:place], "reuse", *CANONICAL[place:]):
                model = nodes[name](model)
            drawn.append(studio.sample(model, steps=9))
            assert "step_reuse" in kinds(model)
            assert model.get_attachment("paceline").find("step_reuse").policy.outcome.forecast >= 2
    assert torch.equal(*drawn)


@pytest.mark.thorough  # the canonical order above is really compiled too
@pytest.mark.parametrize("turn", range(5))
def test_orders_that_are_really_compiled(studio, draw, canonical, turn):
    ordered, found = draw(TURNS[turn])
    assert torch.equal(found, canonical[1])
    summaries = {one.kind: one.last_summary() for one in ordered.get_attachment("paceline").techniques}
    assert [kind for kind, summary in summaries.items() if summary.state == "inactive"] == ["qkv_fusion"]  # int8 layers
    assert {kind for kind, summary in summaries.items() if not summary.neutral} == {"int8"}
    torch._dynamo.reset()
