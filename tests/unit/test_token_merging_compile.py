"""One graph without breaks, valid for every step, with the results of eager execution."""

from __future__ import annotations

import torch
from matchings import random_tokens
from paceline.optimizers.token_merging.grid import partition_tokens, random_offsets
from paceline.optimizers.token_merging.merging import match, merge, unmerge
from torch._dynamo import testing


def block(x, step, height, width, block_number=3):
    """Everything that one block of a model does, with a stand-in for its attention."""
    offsets = random_offsets(height, width, seed=2**40 + 5, step=step, block=block_number, device=x.device)
    partition = partition_tokens(height, width, offsets=offsets, device=x.device)
    matching = match(x, partition, 0.5)
    merged = torch.tanh(merge(x, matching))
    return unmerge(merged, matching), merged, matching


def compiled(backend, dynamic=None):
    torch._dynamo.reset()
    counter = testing.CompileCounterWithBackend(backend)
    return torch.compile(block, fullgraph=True, backend=counter, dynamic=dynamic), counter


def assert_same(ours, expected, close=False):
    for a, b in zip(ours[2], expected[2], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(ours[:2], expected[:2], strict=True):
        torch.testing.assert_close(a, b) if close else torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_one_graph_serves_all_steps():
    function, counter = compiled("aot_eager")
    images = []
    for step in range(4):
        x = random_tokens(2, 12 * 18, 24)
        images.append(function(x, torch.tensor(step), 12, 18)[0])
        assert_same(function(x, torch.tensor(step), 12, 18), block(x, torch.tensor(step), 12, 18))
        assert_same(block(x, torch.tensor(step), 12, 18), block(x, step, 12, 18))
    assert counter.frame_count == 1
    assert not torch.equal(images[0], images[1])
