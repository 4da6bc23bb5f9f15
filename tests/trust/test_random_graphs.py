"""Random graphs, and whether the judge would notice. ``make trust`` draws many more: see docs/TRUST.md."""

from __future__ import annotations

from itertools import count, islice

import pytest

pytestmark = pytest.mark.slow

# Graphs that were wrong once, and a few of each kind; SDXL's 70 blocks are for `make trust`.
SEEDS = range(3)


@pytest.fixture(scope="module")
def judge(server, client):
    from judge import Judge

    return Judge(client, server.output_dir, lambda: server.log)


def test_random_graphs_draw_the_right_picture(judge, object_info):
    from graphs import Generator

    generator, states = Generator(object_info, compiled=0.0), []
    for seed in SEEDS:
        graph = generator.graph(seed, quick=True)
        verdict = judge.judge(graph)
        assert not verdict.problems, f"{graph}\n" + "\n".join(verdict.problems)
        states.append(verdict.state)
    assert states.count("right") > len(states) * 0.6, states


@pytest.mark.thorough
def test_the_judge_notices_a_wrong_picture_and_a_wrong_count(judge, object_info):
    """The same graph with other settings in the second form is a wrong picture; so is a fault that leaves something."""
    from graphs import Graph

    exact = ("PacelineSetAttentionProcessor", {"model": "chain", "backend": "sdpa_math"})
    graph = Graph(1, "sd15", "plain", ours=[exact], chains=[[exact]])
    assert judge.judge(graph).state == "right"
    graph.chains = [[exact, merging("merge")]]  # but it says that it has the exact one only
    wrong = judge.judge(graph)
    assert wrong.state == "wrong" and "allowed 0.02" in wrong.problems[0]
    assert a_wrong_number_of_blocks_is_noticed(judge, graph)


@pytest.mark.thorough
def test_memory_is_flat_over_many_cycles(judge, object_info):
    """Models that come and go with everything of ours on them leave nothing behind."""
    from graphs import Generator
    from slopes import slope

    generator, samples = Generator(object_info, compiled=0.0), []
    graphs = (generator.graph(seed, quick=True) for seed in count())
    chosen = list(islice((graph for graph in graphs if len(graph.ours) > 1 and draws_whole(judge, graph)), 3))
    for cycle in range(12):
        for graph in chosen:
            judge.run(graph.prompt(True, 1000 + cycle, judge.again()))
        samples.append(judge.memory())
    for name in ("modules", "tensors"):
        rise, error = slope([sample[name] for sample in samples[4:]])
        assert rise <= max(3 * error, 1.0), (name, rise, [sample[name] for sample in samples])


def draws_whole(judge, graph):
    """Say whether a graph is drawn with all of its nodes: none has refused and was left out."""
    verdict = judge.judge(graph)
    return verdict.state == "right" and not verdict.note


def merging(method):
    """Return an Apply ToMe that makes tokens fewer in self-attention."""
    import prompts

    return ("PacelineApplyToMe", {"model": "chain", **prompts.merging(method=method, ratio=0.7, max_downsample="2")})


def a_wrong_number_of_blocks_is_noticed(judge, graph):
    """Run a graph with one Apply ToMe: what it reports must pass, and one block fewer or more must not."""
    from counts import check_counts

    prompt = graph.prompt(True, 0, judge.again(), truth="ours")
    plain = judge.run(graph.prompt(False, 0, judge.again(), truth="plain"))
    ours = judge.run(prompt)
    assert check_counts(prompt, ours.told, plain.truth, ours.truth) == []
    counts = next(event["counts"] for event in ours.told.values() if "all_blocks" in event["counts"])
    true, found = counts["blocks"], []
    assert true
    for counts["blocks"] in (true - 1, true + 1):
        found += check_counts(prompt, ours.told, plain.truth, ours.truth)
    return len(found) == 2 and all("had fewer tokens" in problem for problem in found)


def test_random_graphs_with_reuse_steps_say_what_they_did(server, client, object_info):
    """A budget of 0 changes no bit, nothing crosses runs, and counts are those of the network: see ``StepJudge``."""
    from step_graphs import StepGraphs, StepJudge

    judge = StepJudge(client, server.output_dir, lambda: server.log)
    generator, skipped = StepGraphs(object_info, compiled=0.0), 0
    for seed in (7, 121):
        graph = generator.graph(seed)
        verdict = judge.judge(graph)
        assert not verdict.problems, f"{graph}\n" + "\n".join(verdict.problems)
        skipped += "forecast" in verdict.note or "guidance_reused" in verdict.note
    assert skipped
