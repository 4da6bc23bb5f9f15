"""Apply ToMe where reduced attention gains time, and where it does not: decided once, with the picture of any run."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.models.families import Block
from paceline.optimizers.qkv_fusion import QKVFusion
from paceline.optimizers.step_reuse.reuse_policy import StepReusePolicy
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from paceline.optimizers.token_merging import gains
from paceline.optimizers.token_merging.call import TokenCall
from paceline.optimizers.token_merging.kept import SamplingStep
from paceline.optimizers.token_merging.tome_policy import TokenMergingPolicy
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings

NOTE = gains.Gains.note  # other tests time nothing
LEVELS = [float(level) for level in range(20, -1, -1)]
BLOCKS = [Block(f"input {number}.0", number, 1) for number in range(2)]


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(gains.Gains, "note", NOTE)
    monkeypatch.setattr(gains, "_known", {})


def run(reduced_takes, file=None, beside=()):
    """Return the attentions that were reduced in each step of a run where a whole one takes 1 s, outputs and report."""
    now = 0.0

    def computed(value, seconds):
        nonlocal now
        now += seconds
        return torch.full((1, 384, 4), value)

    policy = TokenMergingPolicy("SD", BLOCKS, TokenMergingSettings(method="kv_downsample", ratio=0.75))
    policy.gains = gains.Gains(file, lambda device: now)
    policy.began()
    activity, counts, outputs = Activity(), [], []
    for number, level in enumerate(LEVELS[:-1]):
        call = policy.call(TokenCall, activity, 0, SamplingStep(LEVELS, number, level), "both", beside=beside)
        counts.append(0)
        for block in BLOCKS:
            found = call.reduction(block, torch.zeros(1, 384, 4), (24, 16))
            if found is None:
                outputs.append(computed(3.0, 1.0))
                continue
            counts[-1] += 1

            def reduced(block=block, call=call):
                call.activity.use(block.name, 384, 96)
                return computed(1.0, reduced_takes)

            outputs.append(call.attend(block, lambda: computed(3.0, 1.0), reduced))
        call.settle()
        activity.model_calls += 1
    policy.ended()
    return counts, torch.stack(outputs), policy.summarize(activity)


def test_where_it_gains_it_goes_on():
    for _ in range(2):
        counts, _, said = run(0.3)
        assert counts == [2] * 20 and said.state == "active"


def test_where_it_does_not_gain_attention_stays_whole_and_the_report_says_so(tmp_path):
    file = tmp_path / "times.json"
    first, picture, said = run(1.2, file)
    assert first == [2, 2, 2] + [0] * 17  # the first steps are full, so they give whole attention either way
    assert (said.state, said.headline) == ("inactive", "off, 0.61x here")
    assert said.details == ("skipped 2 blocks: timed here, whole attention takes as long: 0.61x",)
    gains._known.clear()  # another start of the program
    again, other, said = run(0.3, file)
    assert again == [0] * 20 and said.headline == "off, 0.61x here"
    assert torch.equal(picture, other)


def test_what_others_do_beside_it_is_timed_anew():
    run(1.2)
    counts, _, _ = run(0.3, beside=[QKVFusion(7)])
    assert counts == [2] * 20


def test_reuse_steps_beside_it_changes_nothing_of_one_attention():
    _, alone, _ = run(1.2)
    _, beside, _ = run(0.3, beside=[StepReusePolicy(StepReuseSettings(budget=0.0), "")])
    assert torch.equal(alone, beside)
