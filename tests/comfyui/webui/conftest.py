"""Both hosts, and a look at what is left of us on the network."""

import pytest
from cases import often
from comfy_host import checkpoints
from compiled_models import with_model_of_its_own
from webui_drawing import Host, shadowed


@pytest.fixture(scope="session")
def studio(studio):
    """With a smaller model: each test draws several pictures of many steps."""
    return with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))


@pytest.fixture(params=often(["forge"], ["webui", "forge"]))
def host(request, studio):
    return Host(studio, request.param == "forge")


@pytest.fixture
def untouched(studio):
    """Check afterwards that nothing of ours is left on any layer of the network."""
    network = studio.model.model.diffusion_model
    before = shadowed(network)
    yield
    assert shadowed(network) == before
