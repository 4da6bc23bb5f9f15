"""Set Attention Processor and its guard without a host: what falls back, is tried, decided, and said."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from paceline.optimizers.attention import attention_policy as policies
from paceline.optimizers.attention.attention_policy import HOST_DOES_IT, AttentionPolicy
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.guard import Guard, Spoiled


def made(name="sdpa", **options) -> AttentionPolicy:
    return AttentionPolicy(name, torch.device("cpu"), torch.float32, [8, 16], **options)


def attend(policy, activity, head_size=8, keys=24, times=1, **options):
    """Ask for a call some times, and return the last answer: the output, or None where the host must compute."""
    q, k = torch.randn(1, 2, 24, head_size), torch.randn(1, 2, keys, head_size)
    for _ in range(times):
        found = policy.attend(activity, "block", Inputs(q, k, k), **options)
    return found


def raising(error):
    def function(inputs):
        function.calls.append(inputs.q.shape[-1])
        raise error

    function.calls = []
    return function


def test_a_call_outside_of_the_limits_is_left_to_the_host_and_counted(reads):
    policy, activity = made("sdpa_flash"), Activity()
    limits = tuple(dataclasses.replace(limit, min_key_tokens=96) for limit in policy.backend.limits)
    policy.backend = dataclasses.replace(policy.backend, limits=limits)
    assert attend(policy, activity, keys=100, times=14) is not None and attend(policy, activity, keys=77) is None
    found = policy.summarize(activity)
    assert found.counts == {"calls": 14, "fallbacks": 1}
    reads(found.state, found.headline, *found.details)


def test_a_call_without_keys_is_left_to_the_host(reads):
    """WanDancer asks for one where it is given no picture."""
    activity = Activity()
    assert attend(made("vanilla"), activity, keys=0) is None
    reads(*activity.fallbacks)


def test_a_kernel_that_fails_is_tried_once_for_each_head_size_and_then_left(reads):
    policy, activity = made(), Activity()
    policy.function = raising(RuntimeError("no kernel image is available"))
    for size in (8, 16, 8, 16):
        assert attend(policy, activity, size, times=7) is None
    assert policy.function.calls == [8, 16]
    found = policy.summarize(activity)
    reads(found.state, found.headline, *found.details)


class OutOfResources(Exception):
    """Triton's errors derive from Exception itself."""


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OutOfResources("shared memory"), False),
        (AssertionError("head size"), False),
        (IndexError(), False),
        (KeyError("an interrupt of the host"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
    ],
    ids=repr,
)
def test_what_a_kernel_raises_is_a_fallback_but_what_is_the_hosts_to_handle(error, raised):
    policy, activity = made(always_raised=(KeyError,)), Activity()
    works, policy.function = policy.function, raising(error)
    if not raised:
        assert attend(policy, activity) is None
        assert next(iter(activity.fallbacks)).startswith(type(error).__name__)
        return
    with pytest.raises(type(error)):
        attend(policy, activity)
    policy.function = works
    assert attend(policy, activity) is not None and not activity.fallbacks


def test_a_model_that_asks_for_full_precision_gets_no_kernel_that_quantises():
    policy, activity = made("vanilla"), Activity()
    assert attend(policy, activity, full_precision=True) is not None
    policy.backend = dataclasses.replace(policy.backend, exact=False)
    assert attend(policy, activity, full_precision=True) is None
    assert list(activity.fallbacks) == [policies.FULL_PRECISION]


@pytest.mark.parametrize(
    "activity",
    [
        Activity(skipped={HOST_DOES_IT: "the host does it"}),
        Activity(),
        Activity(fallbacks={"a reason; more": 3}),
        Activity(fallbacks={"a reason": 3, "another": 1}),
        Activity(skipped={"call": "a reason"}),
    ],
    ids=range(5),
)
def test_what_is_said_where_nothing_was_computed(reads, activity):
    found = made().summarize(activity)
    reads(found.state, found.headline)
    assert found.counts["fallbacks"] == activity.fallback_count


class Model:
    """Anything that can be remembered by."""


FINE, BLACK = torch.ones(2, 3), torch.tensor([1.0, float("nan")])


def test_a_layer_that_was_given_such_numbers_is_not_wrong():
    guard, model = Guard(("sage",)), Model()
    evaluation = guard.evaluation(model, (1,))
    evaluation.compare(0, BLACK, BLACK)
    assert not evaluation.verdict(evaluation.close(FINE).wait())[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_numbers_of_a_gpu_travel_without_waiting():
    guard, model = Guard(("sage",), can_begin_again=True), Model()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            guard.closed(guard.evaluation(model, (1,)), torch.full((2, 3), float("nan"), device="cuda"))
    except Spoiled:  # it was quick
        return
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with pytest.raises(Spoiled):
        guard.settle()
