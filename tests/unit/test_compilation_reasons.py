"""Why a function was compiled again: torch's reason, and in words what changed."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.settings import CompileSettings

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        (torch.zeros(2, 4, 3), torch.zeros(2, 4, 5), "another size (torch: tensor 'args[0]' size mismatch at index 2."),
        (
            torch.zeros(2, 4, 3),
            torch.zeros(3, 4, 3),
            "another batch size (torch: tensor 'args[0]' size mismatch at index 0.",
        ),
        (
            torch.zeros(2, 3),
            torch.zeros(2, 3, dtype=torch.float64),
            "another dtype (torch: tensor 'args[0]' dtype mismatch.",
        ),
    ],
)
def test_why_it_compiled_again_is_kept_in_words_and_as_torch_says_it(first, second, changed):
    compiled = CompiledFunction(lambda x: x + 1, CompileSettings(backend="eager", dynamic="false"))
    for x in (first, second, first):
        compiled(x)
    (reason,) = compiled.state.recompile_reasons
    assert reason.startswith(changed) and reason.endswith(")")
    assert CompiledFunction(lambda x: x, CompileSettings(backend="eager")).state.recompile_reasons == []


def test_it_is_said_whose_function_made_torch_compile_again():
    """A patch of another pack has come, and another closure of it then."""

    def made(factor):
        def patch(x):
            return x * factor

        return patch

    def network(x, options):
        for patch in options["patches"].get("attn1_patch", []):
            x = patch(x)
        return x + 1

    owners = {"made.<locals>.patch": "ComfyUI-KJNodes"}

    def owner(thing):
        return next((pack for end, pack in owners.items() if getattr(thing, "__qualname__", "").endswith(end)), "")

    compiled = CompiledFunction(network, CompileSettings(backend="eager"), owner=owner)
    for patches in ({}, {"attn1_patch": [made(2.0)]}, {"attn1_patch": [made(3.0)]}):
        compiled(torch.zeros(3), {"patches": patches})
    first, second = compiled.state.recompile_reasons
    assert "of ComfyUI-KJNodes (torch: " in first and first.startswith("other patches or options (patches)")
    assert "of ComfyUI-KJNodes (torch: " in second
