"""Faults planted into approximate kernels and half precision: the picture is right, and the sentence true.

On a processor the guard's numbers are there at once; ``late`` lets them arrive as they do from a GPU.
"""

import pytest
import torch
from attention_calls import EXACT, approximate, forget_faults
from cases import often
from distances import relative
from paceline.optimizers import guard as guards
from reusing import reuse

CALLS = 14
"""Attention calls in one evaluation of the studio's network: 7 blocks, self- and cross-attention."""


@pytest.fixture
def late(monkeypatch, request):
    """Let numbers arrive when the next evaluation begins; tells how often they were waited for."""
    if not getattr(request, "param", True):
        return None
    asked = []

    class Late(guards.AsyncCopy):
        def __init__(self, numbers):
            super().__init__(numbers)
            self.looks = 0

        def ready(self):
            self.looks += 1
            return super().ready() if self.looks > 1 else None

        def wait(self):
            asked.append("waited")
            return super().wait()

    monkeypatch.setattr(guards, "AsyncCopy", Late)
    return asked


AT_ONCE_AND_LATE = pytest.mark.parametrize("late", often([True], [False, True]), ids=["at once", "late"], indirect=True)


def counting(fault):
    """Return an attention function that hands its call's number and its output to ``fault``."""

    def function(inputs):
        function.calls += 1
        return fault(function.calls - 1, EXACT(inputs))

    function.calls = 0
    return function


def drawn(studio, model, **options):
    forget_faults()
    return studio.sample(model, steps=8, **options)


@pytest.fixture(scope="module")
def expected(studio):
    return studio.sample(studio.attention(studio.model, "sdpa_math"), steps=8)


def summary(model):
    return model.get_attachment("paceline").find("attention").last_summary()


@AT_ONCE_AND_LATE
def test_without_faults_no_bit_changes_and_nothing_waits_before_the_end(studio, expected, late):
    function = counting(lambda number, output: output)
    model = approximate(studio, function)
    assert torch.equal(drawn(studio, model), expected)
    assert function.calls == 8 * CALLS
    assert summary(model).headline == f"planted in {8 * CALLS} attention calls"
    assert late in (None, ["waited"])


def nan_from(evaluation):
    def fault(number, output):
        return output * float("nan") if number // CALLS == evaluation else output

    return fault


@AT_ONCE_AND_LATE
def test_an_evaluation_of_nans_is_computed_again_exactly(studio, expected, late):
    function = counting(nan_from(4))
    model = approximate(studio, function)
    assert relative(drawn(studio, model), expected) < 1e-4
    assert function.calls == 5 * CALLS
    found = summary(model)
    assert found.state == "partly"
    after = "from there on the run is without it" if late is None else "the run began again without it"
    assert found.headline == f"planted gave numbers that are not finite in evaluation 5: {after}"
    assert f"planted in {5 * CALLS} attention calls" in found.details


@pytest.fixture
def inside_one_block(studio):
    """Tells whether the self-attention of one block is being computed."""
    layer = studio.model.model.diffusion_model.middle_block[1].transformer_blocks[0].attn1
    inside = []
    hooks = (
        layer.register_forward_pre_hook(lambda *_: inside.append(True)),
        layer.register_forward_hook(lambda *_: inside.pop() and None),
    )
    yield inside
    for hook in hooks:
        hook.remove()


@AT_ONCE_AND_LATE
def test_one_layer_that_is_off_by_30_percent_is_computed_by_comfyui(studio, expected, late, inside_one_block):
    function = counting(lambda number, output: output * 1.3 if inside_one_block else output)
    model = approximate(studio, function)
    assert relative(drawn(studio, model), expected) < 1e-4
    found = summary(model)
    assert found.state == "partly"
    assert found.headline == "planted was far from exact attention in 1 layer, now computed exactly"
    assert "8 x fallback: this layer was far from exact attention" in found.details


def overflowing(layer):
    """Let a layer compute with numbers that fit into fp32 and not into fp16; return what takes that off again."""
    return layer.register_forward_hook(lambda module, args, output: output * 1e6 / 1e6)


def test_half_precision_that_overflows_is_computed_in_the_dtype_of_before(studio):
    model = studio.run("PacelineModelPrecision", model=studio.model, dtype="fp16")
    hook = overflowing(model.model.diffusion_model.middle_block[1].proj_in)
    try:
        forget_faults()
        found = studio.sample(model, steps=2)
        again = studio.sample(model, steps=2)
    finally:
        hook.remove()
    assert relative(found, studio.sample(studio.model, steps=2)) < 0.02
    assert torch.equal(again, found)
    assert model.model.manual_cast_dtype is None
    technique = model.get_attachment("paceline").find("precision")
    assert technique.last_summary().headline == "fp16 is not used with this model and size, where it went wrong before"


def test_differences_that_were_measured_exactly_are_added_in_half_precision(studio):
    """Numbers that are not finite and are another node's: the evaluation is computed in fp32, and the next in fp16."""

    def spoil(args):
        return (
            [one * float("nan") for one in args["conds_out"]]
            if not seen.append(0) and len(seen) == 1
            else args["conds_out"]
        )

    seen, spoiled = [], studio.model.clone()
    spoiled.set_model_sampler_pre_cfg_function(spoil)
    model = studio.tome(spoiled, method="kv_downsample", ratio=0.75, residual="auto")
    model = studio.run("PacelineModelPrecision", model=model, dtype="fp16")
    assert studio.sample(model, steps=8).isnan().all() and len(seen) >= 8


def test_generated_code_that_goes_wrong_is_left_out(small):
    ran = []

    @torch._dynamo.register_backend(name="paceline_planted")
    def planted(graph, example_inputs):
        def run(*inputs):
            ran.append(1)
            return [output * float("nan") for output in graph(*inputs)] if len(ran) == 3 else graph(*inputs)

        return run

    model = small.run("PacelineCompileUNet", model=small.model, backend="paceline_planted", scope="whole_model")
    forget_faults()
    found = small.sample(model, steps=5)
    assert relative(found, small.sample(small.model, steps=5)) < 1e-4
    assert len(ran) == 3
    technique = model.get_attachment("paceline").find("compilation")
    expected = "compiled code gave numbers that are not finite in evaluation 3: from there on the run is without it"
    assert technique.last_summary().headline == expected


def test_reuse_steps_begins_again_with_the_sampler(studio, late):
    """Forecasts of the attempt that was spoiled are not used in the next."""

    def drawn_with(function):
        model = approximate(studio, function, reuse(studio, studio.model))
        return model, drawn(studio, model)

    plain, (_, expected) = drawn(studio, studio.model), drawn_with(counting(lambda number, output: output))
    model, found = drawn_with(counting(nan_from(3)))
    # Rounding can choose another of two forecasts that are as good.
    assert relative(found, expected) < relative(expected, plain) and relative(found, plain) < 2 * relative(
        expected, plain
    )
    assert "the run began again without it" in summary(model).headline
