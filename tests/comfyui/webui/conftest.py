"""Both hosts, and a look at what is left of us on the network."""

import pytest
from webui_drawing import Host, shadowed


@pytest.fixture(params=["webui", "forge"])
def host(request, studio):
    return Host(studio, request.param == "forge")


@pytest.fixture
def untouched(studio):
    """Check afterwards that nothing of ours is left on any layer of the network."""
    network = studio.model.model.diffusion_model
    before = shadowed(network)
    yield
    assert shadowed(network) == before
