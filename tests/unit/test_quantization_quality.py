"""Quantisation of a model with trained weights: choosing layers keeps the picture, int8 everywhere does not.

The thresholds stand a few dB from what benchmarks/quantization.py measures.
"""

from __future__ import annotations

import math

import pytest
import torch
from comfy_host.packages import PackageMissing
from needs import missing
from terrain import fetch, network, quantizing

pytestmark = pytest.mark.slow

PICTURES = range(6)


@pytest.fixture(scope="module")
def model() -> network.TerrainUNet:
    try:
        return network.load(fetch.weights())
    except PackageMissing as error:
        missing(str(error))


@pytest.fixture(scope="module")
def reference(model):
    return network.draw(model, PICTURES)


def psnr(pictures, reference):
    """Of each picture's range, over all pictures, in dB."""
    extent = reference.amax((1, 2)) - reference.amin((1, 2))
    return -10 * math.log10(((pictures - reference) / extent[:, None, None]).square().mean().item())


@pytest.fixture(scope="module")
def quality(model, reference):
    def measure(weights):
        with quantizing.quantized(model, weights):
            pictures = network.draw(model, PICTURES)
        assert torch.equal(network.draw(model, PICTURES), reference)
        return psnr(pictures, reference)

    return measure


def test_looking_changes_nothing(model, reference, quality):
    assert quality({}) > 90
    assert len(quantizing.observe(model, range(1))) == len(quantizing.linear_layers(model))


@pytest.mark.thorough
def test_the_quality_preset_is_six_decibels_above_int8_everywhere(model, quality):
    weights, choices = quantizing.chosen(model, "quality", range(100, 102))
    everywhere = quantizing.everything(model)
    assert 20 <= len(weights) < len(everywhere)
    kept = {choice.reason for choice in choices if choice.weight is None}
    assert kept == {"it embeds or modulates: little work, much effect"}
    assert quality(weights) > 38  # measured: 42.2 dB
    assert quality(weights) > quality(everywhere) + 6  # 23.5
    assert quality(quantizing.everything_tensorwise(model)) < quality(everywhere)  # 22.4
