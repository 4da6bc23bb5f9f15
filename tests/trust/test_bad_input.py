"""A sample of bad inputs to our nodes, and the rule that finds unclear answers. ``make trust`` gives all of them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_bad_input_gets_a_clear_answer(client, object_info):
    from bad_inputs import Cases, answer

    unclear = []
    for case in Cases(object_info).some(20, seed=1):
        kind, message = answer(client, case)
        if kind == "unclear":
            unclear.append(f"{case.node}: {case.what}: {message}")
    assert not unclear, "\n".join(unclear)


@pytest.mark.parametrize(
    "message",
    [
        "'NoneType' object has no attribute 'shape'",
        "mat1 and mat2 shapes cannot be multiplied (4x8 and 9x3)",
        "ValueError: nothing",
        "No such file: /home/me/ComfyUI/x",
        "",
        "x" * 2000,
    ],
)
def test_the_rule_finds_what_a_newcomer_cannot_read(message):
    from bad_inputs import unclear

    assert unclear(message)
    assert unclear("ratio is 7. It must be a number from 0 to 1.") is None
