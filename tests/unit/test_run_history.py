"""What a node says of all runs of a prompt: one line for each, and a headline of all of them together."""

from __future__ import annotations

from paceline.optimizers.core.activity import Activity, Summary
from paceline.optimizers.core.technique import Policy, RunHistory


class Blocks(Policy):
    kind = "attention"
    title = "Blocks"

    def clauses(self):
        return ("blocks",)

    def summarize(self, activity):
        if not activity.used:
            return Summary("inactive", "no block", {}, ("the picture is small",))
        return Summary("active", f"active in {len(activity.used)} blocks", {"calls": activity.use_count}, ("a detail",))


def told(runs, policy=None):
    """Return the summary of runs, each given by the blocks that it used."""
    policy = policy or Blocks()
    history = RunHistory(policy)
    activities = [Activity(model_calls=1, used=dict.fromkeys(blocks, 1)) for blocks in runs]
    for activity in activities[:-1]:
        history.add(policy.summarize(activity), activity)
    return history.ending_with(policy.summarize(activities[-1]), activities[-1])


def test_a_run_alone_says_what_it_says():
    assert told(["ab"]) == Blocks().summarize(Activity(used={"a": 1, "b": 1}))


def test_a_later_run_that_did_nothing_does_not_hide_an_earlier_one():
    found = told(["ab", "b", ""])
    assert (found.state, found.headline) == ("active", "active in 2 blocks, in 2 of 3 runs")
    assert found.counts == {"calls": 3}
    assert found.details == (
        "run 1: active in 2 blocks", "run 2: active in 1 blocks", "run 3: no block: the picture is small", "a detail",
    )  # fmt: skip


def test_runs_that_did_nothing_are_not_counted_in_the_headline():
    assert told(["", ""]).headline == "no block"


def test_what_a_guard_found_in_any_run_is_the_headline():
    policy = Blocks()
    history = RunHistory(policy)
    wrong = Activity(used={"a": 1}, faults={"left out: wrong numbers": None})
    history.add(policy.summarize(wrong), wrong)
    found = history.ending_with(policy.summarize(Activity(used={"a": 1})), Activity(used={"a": 1}))
    assert (found.state, found.headline) == ("partly", "left out: wrong numbers")
