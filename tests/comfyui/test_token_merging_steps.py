"""Apply ToMe knows the step without asking the device for it, and draws as if it asked."""

import pytest
from cases import often
from paceline.service.comfyui.sampling_job import samplers_and_schedulers
from torch.utils._python_dispatch import TorchDispatchMode

SETTINGS = {"method": "kv_downsample", "ratio": 0.75}
STEPS = 6


class Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor; on a GPU each waits for the device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ == "_local_scalar_dense"
        return function(*args, **(kwargs or {}))


def reads(studio, model, steps, **options):
    with Reads() as counted:
        studio.sample(model, steps=steps, **options)
    return counted.count


@pytest.mark.parametrize("residual", ["off", "auto"])
@pytest.mark.parametrize("sampler", often(["dpmpp_2m_sde"], ["euler", "dpmpp_2m_sde"]))
def test_no_step_after_the_first_reads_a_number(studio, small, sampler, residual):
    model = small.tome(small.model, **SETTINGS, residual=residual)
    few, many = ((reads(small, one, steps, sampler=sampler) for one in (small.model, model)) for steps in (4, 12))
    (plain_few, ours_few), (plain_many, ours_many) = few, many
    assert ours_few - plain_few == ours_many - plain_many <= 6


def as_it_is(apply, given):
    """A wrapper of another pack: nobody knows what it does to the noise level."""
    return apply(given["input"], given["timestep"], **given["c"])


def activity(studio, model, **options):
    picture = studio.sample(model, steps=STEPS, **options)
    (technique,) = model.get_attachment("paceline").techniques
    return technique.runs.latest.activity, picture


# One that can be followed, and one for each way of calling the network between two steps.
SOME = ("heun", "dpm_fast", "ddim")


@pytest.mark.slow
@pytest.mark.parametrize("samplers", often(["some"], ["some", "all"]))
def test_a_sampler_decides_as_when_each_noise_level_is_read(studio, small, samplers):
    for sampler in SOME if samplers == "some" else samplers_and_schedulers()[0]:
        model = small.tome(small.model, **SETTINGS)
        asked = model.clone()
        asked.set_model_unet_function_wrapper(as_it_is)
        found, picture = activity(small, model, sampler=sampler)
        expected, other = activity(small, asked, sampler=sampler)
        assert found == expected and picture.equal(other), sampler
