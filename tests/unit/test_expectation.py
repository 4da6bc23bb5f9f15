"""What is expected of other settings, from a run that was observed: made up here, with a path that is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from paceline.measure.expect import REUSED, Probed, Range, expect, propose, speedup
from paceline.measure.replay import ENTRIES, FEWEST, RecordedEvaluation, Sampling, Subsample, replay
from paceline.optimizers.step_reuse.parts import undivided
from paceline.service.faster.sentences import Tried, expected_parts, expected_speed, left_open, why_dropped


def sampling(steps=20, noise=0.0, solver="euler", sound=False):
    """A run whose predictions go to a picture on a smooth path; ``noise``: how far each is from it."""
    generator = torch.Generator().manual_seed(1)
    start, picture = torch.zeros(1, 4, 16, 16), torch.randn(1, 4, 16, 16, generator=generator)
    levels = [*torch.logspace(1, -1, steps).tolist(), 0.0]
    sketch = Subsample(picture.shape, undivided)
    found = Sampling("model", solver, levels, False, tuple(picture.shape), sketch, sampling_seconds=10.0)
    for number, sigma in enumerate(levels[:-1]):
        off = torch.randn(picture.shape, generator=generator) * noise
        guided = sketch.of(start + (picture - start) * (number / (steps - 1)) ** 2 + off)
        latent = guided + sigma * sketch.of(torch.randn(picture.shape, generator=generator))
        found.seen.append(RecordedEvaluation(sigma, latent, guided, guided))
    found.evaluations = len(found.seen)
    return found


def probed(name="merged", error=0.01, speedup=(1.2, 1.3, 1.4), why_not=""):
    return Probed(name, speedup, True, error, points=2, why_not=why_not)


def test_a_sketch_has_the_root_mean_squares_of_the_parts():
    video = torch.randn(2, 4, 9, 40, 40) * torch.linspace(1, 3, 9)[:, None, None]
    sketch = Subsample(video.shape, lambda latent: [latent.movedim(2, 1)])
    (parts,) = sketch.split(sketch.of(video))
    assert parts.shape == (2, 9, max(FEWEST, ENTRIES // 9))
    true = video.movedim(2, 1).flatten(2).square().mean(2).sqrt()
    assert torch.allclose(parts.square().mean(2).sqrt(), true, rtol=0.15)
    before = torch.get_rng_state()
    again = Subsample(video.shape, lambda latent: [latent.movedim(2, 1)])
    assert torch.equal(again.of(video), sketch.of(video)) and torch.equal(torch.get_rng_state(), before)


def test_budgets_are_a_scale_and_a_noisy_path_leaves_out_less():
    smooth, rough = sampling(), sampling(noise=0.3)
    work = [replay(smooth, budget).work for budget in (0.02, 0.05, 0.1, 0.4)]
    assert min(work[:2]) > max(work[2:])
    assert replay(rough, 0.1).work > replay(smooth, 0.1).work
    assert replay(smooth, 0.1) is replay(smooth, 0.1)
    smooth.refusals.append("another node leaves out steps")
    smooth.replayed.clear()
    assert replay(smooth, 0.1).why_not == "another node leaves out steps" and replay(smooth, 0.1).work == 1.0


def test_of_few_steps_a_level_that_would_go_at_a_smaller_budget_goes_in_other_pictures_too():
    run = sampling(steps=8)
    latent = run.seen[0].latent
    for number, seen in enumerate(run.seen):  # the rule follows where Euler leads
        run.seen[number] = replace(seen, latent=latent)
        latent = seen.guided + (latent - seen.guided) * (run.levels[number + 1] / seen.sigma)
    budget = next(one / 100 for one in range(1, 100) if replay(run, one / 100).work < 1)
    assert replay(run, budget).computed == 7
    assert expect(run, budget=budget).time_left.high == 1.0, "another picture may cost a little more"
    assert expect(run, budget=2 * budget).time_left.high <= 7 / 8
    certain = propose(run, [], 3 * 1.7 * budget)
    assert certain.budget is not None and certain.time_left.high <= 7 / 8


def test_15_steps_are_few_only_where_the_samplers_step_is_known():
    run = sampling(steps=15, solver="heun", noise=0.01)
    run.levels[:-1] = [level / 4 for level in run.levels[:-1]]  # down to little noise
    assert replay(run, 0.5).work < 1
    assert expect(run, budget=0.5).distance.high == pytest.approx(0.5 * REUSED.high)


def test_causes_add_up_in_squares_and_seconds_multiply():
    run = sampling()
    merged, reused = expect(run, [probed()]), expect(run, budget=0.1)
    both = expect(run, [probed()], 0.1)
    assert both.distance.likely == pytest.approx(math.hypot(merged.distance.likely, reused.distance.likely))
    assert both.time_left.likely == pytest.approx(merged.time_left.likely * reused.time_left.likely)
    assert expect(run).distance == Range(0.0, 0.0, 0.0) and expect(run).time_left.likely == 1.0
    for one in (merged, reused, both):
        assert one.distance.low < one.distance.likely < one.distance.high and one.time_left.low <= one.time_left.high


def test_the_cautious_end_decides():
    run = sampling(noise=0.02)
    limits = (0.02, 0.05, 0.15, 0.5)
    found = [propose(run, [probed()], limit) for limit in limits]
    assert all(one.distance.high <= limit for one, limit in zip(found, limits, strict=True) if one)
    left = [1.0 if one is None else one.time_left.likely for one in found]
    assert left == sorted(left, reverse=True) and left[-1] < left[0]
    assert propose(run, [probed()], 0.5, reuse=False).budget is None
    assert propose(run, [probed(speedup=(0.9, 1.3, 1.9))], 0.5, reuse=False) is None  # not certainly faster
    assert propose(run, [probed(why_not="not here")], 0.5, reuse=False) is None
    two = [probed("fast", 0.02, (1.5, 1.6, 1.7)), probed("attention", 0.0, (1.05, 1.1, 1.2))]
    assert propose(run, two, 0.5, reuse=False).names == ("fast", "attention")
    alike = [replace(one, kind="attention") for one in two]
    assert propose(run, alike, 0.5, reuse=False).names == ("fast",)  # a model carries one of a kind


def test_a_workflow_gains_what_its_steps_gain():
    run = sampling()
    half = expect(run, [probed(speedup=(1.6, 2.0, 2.5))])
    found = speedup(20.0, [(run.sampling_seconds, half.time_left)])
    assert found.likely == pytest.approx(20 / 15) and found.low < found.likely < found.high
    assert speedup(20.0, [(run.sampling_seconds, expect(run).time_left)]).likely == 1.0


def on(link, seconds=10.0):
    run = sampling()
    run.link, run.sampling_seconds = link, seconds
    return run


def tried_on(run, one):
    return Tried(run.link, one, one.wins(run.sampling_seconds), expect(run, [one]).distance.high)


def test_a_candidate_is_not_tried_where_no_sampler_of_its_model_tried_it():
    a, b = on("a"), on("b")
    tried, untried = probed(), Probed("merged")
    assert [*left_open([tried_on(a, tried), tried_on(a, untried)], {"merged"}, False)] == []
    (said,) = left_open([tried_on(a, tried), tried_on(b, untried)], {"merged"}, False)
    assert said == "1 of 2 candidates were tried before the time was up. The next run begins with: merged."


def test_each_candidate_that_is_dropped_has_its_reason():
    run = on("a")
    cases = {
        "merged: own attention is sdpa already.": probed(why_not="own attention is sdpa already"),
        "merged: 1.01x as fast here, which is no gain.": probed(speedup=(0.99, 1.01, 1.02)),
        "merged: 1.10x as fast here, which can be chance.": replace(probed(speedup=(1.02, 1.1, 1.2)), noise=1.12),
        "merged: the picture could move farther than you chose.": probed(error=0.9),
        "merged: the whole run would gain too little.": probed(error=0.0, speedup=(1.01, 1.02, 1.03)),
    }
    cost = "costs 108 s once, and up to that after a restart; saves 0.099 s a picture: pays from picture 1091 on"
    cases[f"merged: {cost}."] = replace(probed(speedup=(1.005, 1.01, 1.02)), once=108.0)
    for said, one in cases.items():
        assert why_dropped(tried_on(run, one), 0.5, 100) == said
    assert why_dropped(tried_on(run, Probed("merged")), 0.5, 100) is None, "it is open"


def test_what_a_busy_machine_shows_is_no_gain():
    run, quick = on("a"), replace(probed(error=0.0, speedup=(1.3, 1.9, 2.7)), noise=2.0)
    assert quick.state == "drowned" and propose(run, [quick], 0.5, reuse=False) is None
    (said,) = left_open([tried_on(run, quick)], set(), False)
    assert said.startswith("This machine is busy: the same evaluation took 2.0x as long at another moment. merged ")
    clear = replace(quick, noise=1.2)
    assert clear.state == "faster" and propose(run, [clear], 0.5, reuse=False).names == ("merged",)


def test_numbers_are_written_as_people_read_them():
    assert expected_speed(Range(5.5, 17.2, 143.0), 0.0, 1.0) == "expected 17x (5.5 to 140)"


def test_one_number_is_said_once():
    same, far = Range(0.0, 0.0, 0.0), Range(0.01, 0.05, 0.1)
    whole, steps, vae = Range(1.5, 1.8, 2.0), Range(1.6, 1.83, 2.1), Range(2.0, 3.0, 4.0)
    assert expected_parts(whole, steps, None, same) == "the same picture"
    assert expected_parts(whole, steps, None, far) == "difference hardly visible, 1/10 of a seed change at most"
    assert expected_parts(whole, vae, None, same) == "steps 3.0x (2.0 to 4.0), the same picture"
    assert expected_parts(whole, None, vae, same) == "VAE 3.0x (2.0 to 4.0), the same picture"
    both = "steps 3.0x (2.0 to 4.0), VAE 3.0x (2.0 to 4.0), the same picture"
    assert expected_parts(whole, vae, vae, same) == both
