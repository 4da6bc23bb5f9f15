"""What a node says of all runs of a prompt: one line for each, and a headline of all of them together."""

from __future__ import annotations

import pytest
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


RUNS = ["run 1: active in 2 blocks", "run 2: active in 1 blocks", "run 3: no block: the picture is small", "a detail"]
FAULT = "left out: wrong numbers"


@pytest.mark.parametrize(
    ("runs", "faults", "state", "headline", "details"),
    [
        (["ab"], [], "active", "active in 2 blocks", ["a detail"]),
        (["ab", "b", ""], [], "active", "active in 2 blocks, in 2 of 3 runs", RUNS),
        (["", ""], [], "inactive", "no block", None),
        (["a", "a"], [FAULT], "partly", FAULT, None),
    ],
    ids=["one", "a later run hides no earlier one", "none", "what a guard found in any run"],
)
def test_the_headline_is_of_all_runs(runs, faults, state, headline, details):
    policy, activities = Blocks(), [Activity(model_calls=1, used=dict.fromkeys(blocks, 1)) for blocks in runs]
    activities[0].faults.update(dict.fromkeys(faults))
    history = RunHistory(policy)
    for activity in activities[:-1]:
        history.add(policy.summarize(activity), activity)
    found = history.ending_with(policy.summarize(activities[-1]), activities[-1])
    assert (found.state, found.headline) == (state, headline)
    assert details is None or [*found.details] == details
    assert sum(found.counts.values()) == sum(map(len, runs))
