"""Seven nodes in any order give one picture, and it is the one of the canonical order.

Techniques install in their own order, whatever that of the nodes was. So the sets are equal bit for bit; only what is
attached last differs, and it must not matter.
"""

import pytest
import torch
from cases import often
from comfy_host import checkpoints
from distances import relative
from model_changes import lora_for
from our_nodes import put
from reusing import outcome

CANONICAL = ("lora", "precision", "int8", "fuse", "attention", "merge", "compile")
TURNS = [CANONICAL[turn:] + CANONICAL[:turn] for turn in range(len(CANONICAL))]


@pytest.fixture(scope="module")
def small():
    """A model of its own: two blocks, so that compiling is quick, on which nobody else leaves anything."""
    return checkpoints.smallest_unet(width=64, context=48)


@pytest.fixture(scope="module")
def draw(studio, small):
    def run(order, steps=1):
        model = small
        for name in order:
            model = lora_for(model) if name == "lora" else put(studio, name, model)
        return model, studio.sample(model, steps=steps)

    return run


def kinds(model):
    return [technique.kind for technique in model.get_attachment("paceline").techniques]


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


def test_steps_are_left_out_wherever_the_node_stands(draw):
    """One step, as above, leaves nothing to reuse; so this needs more of them, and fewer orders."""
    drawn = []
    with torch.compiler.set_stance("force_eager"):
        for place in (0, len(CANONICAL)):
            model, picture = draw((*CANONICAL[:place], "reuse", *CANONICAL[place:]), steps=9)
            drawn.append(picture)
            assert outcome(model).forecast >= 2
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
