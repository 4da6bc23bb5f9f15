"""The two ends of a sampling run, without a host: who is told, and when a run with several participants is over."""

from __future__ import annotations

from paceline.core.activity import Activity, Summary
from paceline.core.technique import ATTENTION, Policy, Technique
from paceline.optimizers.hosts.comfyui.runs import RunLog


class Told(Policy):
    kind = ATTENTION
    title = "Told"

    def __init__(self) -> None:
        self.ends: list[str] = []

    def clauses(self) -> tuple[str, ...]:
        return ("told",)

    def summarize(self, activity: Activity) -> Summary:
        return Summary("active", "told")

    def began(self) -> None:
        self.ends.append("began")

    def ended(self) -> None:
        self.ends.append("ended")


def test_a_technique_tells_its_policy_of_both_ends():
    technique = Technique(Told())
    technique.began()
    technique.ended()
    assert technique.policy.ends == ["began", "ended"]


def test_a_run_begins_with_its_first_participant_and_ends_with_its_last():
    log = RunLog()
    assert [log.begin(1), log.begin(2)] == [True, False]
    assert [log.finish(2), log.finish(3), log.finish(1), log.finish(1)] == [False, False, True, False]


def test_who_begins_twice_was_interrupted_and_that_run_is_over():
    log = RunLog()
    log.begin(1)
    log.add(Activity(model_calls=5))
    assert not log.interrupted(2)
    assert log.interrupted(1) and log.begin(1)
    assert log.latest is not None and log.latest.activity.model_calls == 0
    assert log.finish(1) and not log.interrupted(1)


def test_calls_outside_of_a_run_neither_begin_nor_end_one():
    log = RunLog()
    log.add(Activity(model_calls=1))
    assert not log.finish(1)
    assert log.begin(1) and log.finish(1)
