"""What a technique that compiles says of a run: sentences and counts, from what was counted."""

from __future__ import annotations

from paceline.core.activity import Activity
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.compiler import CompiledNetwork
from paceline.optimizers.compilation.policy import CompilePolicy
from paceline.optimizers.compilation.settings import NetworkSettings

HOW = NetworkSettings(backend="eager")


def policy(**options):
    return CompilePolicy("Compile UNet", HOW, "whole model", **options)


def used(policy, **counts):
    """Return a network that ``policy`` uses, with these counts."""
    function = CompiledFunction(lambda x: x, HOW)
    for name, value in counts.items():
        setattr(function.state, name, value)
    network = CompiledNetwork(function)
    policy.use(network)
    return network


def activity(calls=4, graphs=0, **eager):
    found = Activity()
    for place, count in (("whole model", calls), ("graphs compiled", graphs)):
        if count:
            found.used[place] = count
    found.fallbacks.update({reason.replace("_", " "): count for reason, count in eager.items()})
    return found


def test_a_run_that_compiled_and_one_that_found_everything_in_the_cache():
    one = policy()
    network = used(one, graphs=2, recompiles=1, seconds=12.4)
    said = one.summarize(activity(graphs=2))
    assert (said.state, said.headline) == ("active", "compiled whole model: 2 graphs, 1 recompile, 12 s once")
    assert said.details == ("2 of the graphs compiled in this run; the next run of this kind has them",)
    assert (said.counts["compiled_calls"], said.counts["fallbacks"]) == (4, 0)
    network.functions[0].state.cache_hits = 2
    assert "2 graphs (2 from the cache), 1 recompile" in one.summarize(activity()).headline


def test_nothing_compiled_says_why():
    assert policy().summarize(activity(calls=0)).headline == "not compiled: whole model was not called"
    said = policy().summarize(activity(calls=0, no_compiler=2))
    assert (said.state, said.headline) == ("inactive", "not compiled: all 2 calls ran uncompiled")
    assert "2 x fallback: no compiler" in said.details
    assert policy().summarize(activity(no_compiler=1)).state == "partly"


def test_graph_breaks_are_named_by_the_worst_place_and_its_remedy():
    one = policy(break_remedies={"get_free_memory": "start with --use-pytorch-cross-attention"})
    places = {"get_free_memory (model_management.py:1710)": 3, "patch (pack.py:1)": 1}
    network = used(one, graphs=3, graph_breaks=4, break_places=places)
    said = one.summarize(activity())
    assert said.state == "partly"
    assert "4 graph breaks at get_free_memory (model_management.py:1710) and 1 more places: start with" in said.headline
    network.functions[0].state.break_places = {"patch (pack.py:1)": 1}
    assert "at patch (pack.py:1): take off the node that runs Python there" in one.summarize(activity()).headline


def test_the_latest_reasons_and_the_last_variants_are_told():
    one = policy()
    network = used(one, recompile_reasons=["another size", "another dtype", "another batch size", "other patches"])
    network.functions[0]._backend.variants[0] = HOW.recompile_limit - 2
    details = one.summarize(activity()).details
    assert [line for line in details if line.startswith("compiled again for ")] == [
        "compiled again for another dtype",
        "compiled again for another batch size",
        "compiled again for other patches",
    ]
    assert any(line.startswith("2 of 32 variants are left to compile") for line in details)
