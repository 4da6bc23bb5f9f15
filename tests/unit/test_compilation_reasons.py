"""Why a function was compiled again: torch's reason, and in words what changed."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.settings import CompileSettings
from paceline.optimizers.compilation.state import explain_recompile

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        (torch.zeros(2, 4, 3), torch.zeros(2, 4, 5), "another size (tensor 'args[0]' size mismatch at index 2."),
        (torch.zeros(2, 4, 3), torch.zeros(3, 4, 3), "another batch size (tensor 'args[0]' size mismatch at index 0."),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64), "another dtype (tensor 'args[0]' dtype mismatch."),
    ],
)
def test_why_it_compiled_again_is_kept_in_words_and_as_torch_says_it(first, second, changed):
    compiled = CompiledFunction(lambda x: x + 1, CompileSettings(backend="eager", dynamic="false"))
    for x in (first, second, first):
        compiled(x)
    (reason,) = compiled.state.recompile_reasons
    assert reason.startswith(changed) and reason.endswith(")")
    assert CompiledFunction(lambda x: x, CompileSettings(backend="eager")).state.recompile_reasons == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0/0: args[0].size()[2] == 8  # in f\nUser stack trace:\n  ...", "another size (args[0].size()[2] == 8)"),
        ("0/3: weights == '0123'  # not weights", "weights of another dtype, size or device (a LoRA, a precision)"),
        ("0/1: len(kwargs['transformer_options']['patches']) == 1", "other patches or options (len("),
        ("12/1: kwargs['y'] is None", "kwargs['y'] is None"),
    ],
)
def test_reasons_of_guards_that_are_no_tensors(line, said):
    assert explain_recompile(line).startswith(said)
