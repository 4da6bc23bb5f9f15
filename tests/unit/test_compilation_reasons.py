"""Why a function was compiled again: torch's reason, and in words what changed."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.reasons import explain_recompile
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "0/0: args[0].size()[2] == 8  # in f\nUser stack trace:\n  ...",
            "another size (torch: args[0].size()[2] == 8)",
        ),
        ("0/3: weights == '0123'  # not weights", "weights of another dtype, size or device (a LoRA, a precision)"),
        ("0/1: len(kwargs['transformer_options']['patches']) == 1", "other patches or options (patches) (torch: len("),
        (
            "0/2: args[5]['cond_or_uncond'] == '0'",
            "other passes at once (the positive prompt, the negative one, or both",
        ),
        ("0/4: args[5]['some_node'] == 3", "other patches or options (some_node) (torch: args[5]"),
        (
            "0/1: function.__closure__[0].cell_contents.__self__._modules['layers']._modules['3'].forward == 1",
            "another function, or other values that it holds in the layer layers.3 (torch: function",
        ),
        (
            "0/1: args[0]._modules['attn1']._modules['to_q']._parameters['weight'].patches[0][0][0][0] == 0.5",
            "a LoRA that is applied while the layer computes in the layer attn1.to_q (torch: args[0]",
        ),
        ("12/1: kwargs['y'] is None", "a value in the call or the network that is another one (torch: kwargs['y'] is"),
    ],
)
def test_reasons_of_guards_that_are_no_tensors(line, said):
    assert explain_recompile(line).startswith(said)
