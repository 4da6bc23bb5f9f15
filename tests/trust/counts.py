"""Whether what our nodes report is what torch counted: one rule for each number."""

from __future__ import annotations

from typing import Any

from graphs import keeps_differences

Calls = list[list[tuple[int, int]]]
"""For each call of the network, query and key tokens of each call of PyTorch's attention."""


def check_counts(prompt: dict[str, Any], told: dict[str, dict[str, Any]], plain: Calls, ours: Calls) -> list[str]:
    """Return what does not agree.

    Args:
        prompt: the optimized graph; only graphs with one chain of models can be compared call by call.
        told: the last event of each node.
        plain: what was counted in the plain graph.
        ours: what was counted in the optimized one.
    """
    if len({node["class_type"] for node in prompt.values()} & {"KSamplerAdvanced", "DualModelGuider"}):
        return []
    samplers = [node for node in prompt.values() if node["class_type"] in ("KSampler", "SamplerCustomAdvanced")]
    chains = [node for node in prompt.values() if node["class_type"] == "TrustFault"]
    if len(samplers) != 1 or len(chains) != 1:
        return []
    nodes = attached(prompt)
    problems: list[str] = []
    tome = [(node["class_type"], node["inputs"]) for node in map(prompt.__getitem__, nodes.values())]
    twice = keeps_differences(tome)
    for node in nodes.values():
        event = told.get(node)
        if event is not None:  # a node that has handed its model on tells so once, when it runs
            kind = prompt[node]["class_type"]
            found = _problems(kind, prompt[node]["inputs"], event["counts"], plain, ours, twice)
            problems += [f"{kind}: {event['headline']}: {problem}" for problem in found]
    return problems


def attached(prompt: dict[str, Any], end: str = "TrustTruth") -> dict[str, str]:
    """Return the last node of each class of ours on the chain that has ``end`` last, after the last removal."""
    found: dict[str, str] = {}
    name = next(name for name, node in prompt.items() if node["class_type"] == end)
    while True:
        node = prompt[name]
        if node["class_type"] == "PacelineRemoveOptimizations":
            return found
        if node["class_type"].startswith("Paceline"):
            found.setdefault(node["class_type"], name)
        link = node["inputs"].get("model") or node["inputs"].get("model1")
        if not isinstance(link, list):
            return found
        name = link[0]


def _problems(
    kind: str, inputs: dict[str, Any], counts: dict[str, float], plain: Calls, ours: Calls, twice: bool
) -> list[str]:
    """``twice``: whether attention may be computed both ways in some calls of the network."""
    problems = []
    if kind == "PacelineApplyToMe" and "model_calls" in counts and counts["model_calls"] != len(ours):
        problems.append(f"says {counts['model_calls']} model calls, there were {len(ours)}")
    if kind == "PacelineModelPrecision" and "calls" in counts and counts["calls"] != len(ours):
        problems.append(f"says {counts['calls']} calls, there were {len(ours)}")
    if kind == "PacelineSetAttentionProcessor" and "calls" in counts and len(plain) == len(ours):
        # Each call of attention either ran on the backend or was left; none is counted twice or forgotten.
        total, real = counts["calls"] + counts["fallbacks"], sum(len(call) for call in plain)
        if real and not real <= total <= (2 if twice else 1) * real:  # ComfyUI's attention need not be PyTorch's
            problems.append(f"says {total} attention calls, there were {real}")
    if kind == "PacelineReuseSteps" and counts.get("evaluations"):
        each, odd = divmod(len(plain), counts["evaluations"])  # some packs call the network once more in some steps
        if not odd and len(ours) != each * counts["computed"]:
            problems.append(f"says {counts['computed']:g} computed: {len(ours)} calls of {len(plain)} were made")
    cross_only = inputs.get("preset") == "custom" and not inputs["merge_attn"]  # whose blocks are not seen below
    if kind == "PacelineApplyToMe" and "blocks" in counts and not cross_only and len(plain) == len(ours):
        problems += _merged_blocks(counts["blocks"], plain, ours)
    return problems


def _merged_blocks(blocks: float, plain: Calls, ours: Calls) -> list[str]:
    """Compare the number of blocks with fewer tokens, where each call of attention went through PyTorch in both."""
    if len({len(call) for call in (*plain, *ours)}) > 1:  # a node of ComfyUI's computes some attention itself
        return []
    shrunk = {
        place
        for before, after in zip(plain, ours, strict=True)
        for place, (one, other) in enumerate(zip(before, after, strict=True))
        if one != other and before[place][0] == before[place][1]  # self-attention
    }
    return [] if len(shrunk) == blocks else [f"says {blocks:g} blocks, {len(shrunk)} had fewer tokens"]
