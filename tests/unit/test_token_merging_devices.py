"""Which kernels the matching uses on which device, how much it holds at once, and what it does at a cut."""

from __future__ import annotations

import torch
from matchings import merged_tokens, random_tokens
from paceline.optimizers.token_merging import merging as implementation
from paceline.optimizers.token_merging.grid import partition_tokens
from paceline.optimizers.token_merging.merging import match
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """Notes the operators that run, with the shapes of the tensors they are given."""

    def __init__(self):
        super().__init__()
        self.shapes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.shapes.setdefault(name, []).append([tuple(a.shape) for a in args if isinstance(a, torch.Tensor)])
        return function(*args, **(kwargs or {}))


def test_similarities_are_computed_in_chunks_on_a_cpu_and_in_one_where_a_graph_would_be_unrolled():
    x, partition = random_tokens(1, 64 * 64, 8), partition_tokens(64, 64)  # 3072 sources, 1024 destinations
    with Calls() as calls:
        match(x, partition, 0.5)
    assert [shapes[0] for shapes in calls.shapes["bmm"]] == [(1, 1024, 8)] * 3
    products = []

    def backend(graph, inputs):
        products.extend(node for node in graph.graph.nodes if "bmm" in str(node.target))
        return graph

    torch._dynamo.reset()
    torch.compile(match, backend=backend, fullgraph=True)(x, partition, 0.5)
    torch._dynamo.reset()
    assert len(products) == 1
    # As many as documented: 4 MiB and 128 MiB of float32.
    assert (4 * implementation.CPU_SCORES, 4 * implementation.DEVICE_SCORES) == (4 * 2**20, 128 * 2**20)


def test_what_is_above_the_cut_goes_before_what_is_level_with_it():
    level_first = torch.tensor([[0.5, 0.5, 0.9, 0.1], [0.9, 0.5, 0.5, 0.5]])
    assert implementation._most_alike(level_first, 2).tolist() == [[2, 0], [0, 1]]
    assert implementation._most_alike(level_first, 3).tolist() == [[2, 0, 1], [0, 1, 2]]


def test_a_token_without_a_direction_is_merged_last():
    """NaN is less like a destination than the opposite direction is."""
    partition = partition_tokens(4, 4)
    x = torch.zeros(1, 16, 3)
    x[0, partition.destinations, 0] = 1.0
    x[0, partition.sources, 0] = -1.0
    broken = int(partition.sources[0])
    x[0, broken] = float("nan")
    found = match(x, partition, 11 / 16)
    assert partition.sources.numel() == 12 and merged_tokens(found).shape == (1, 11)
    assert broken not in merged_tokens(found)[0].tolist()
