"""Runs of Reuse Steps' solvers and of its rule around made networks, on tensors alone."""

from __future__ import annotations

import math

import torch
from paceline.optimizers.models.samplers import SAMPLERS, Place
from paceline.optimizers.step_reuse.correction import Correction

UPDATES = ("euler", "dpmpp_2m", "res_multistep")
LEVELS = [*torch.linspace(math.log(10.0), math.log(0.05), 20).exp().tolist(), 0.0]


def sample(solver, predict, skip=(), correct=False, levels=LEVELS, moved=None, mask=None, keep=None):
    """Run a solver by its updates, as ComfyUI's loop does; ``predict(x, sigma)``. Skipped steps hold the prediction.

    ``moved(x, number)`` changes the latent after each step; a ``mask`` blends ``keep`` into each prediction.
    """
    correction = Correction(SAMPLERS[solver].update) if correct else None
    x, last, given_before = torch.full((1, 4), 9.0), None, None
    held, pending, places = None, [], []
    for number in range(len(levels) - 1):
        place = Place(float(number), levels[number], levels[number + 1])
        if number in skip:
            denoised, off = held, None
            pending.append(place)
        else:
            denoised, off = predict(x, place.sigma), None
            if correction is not None and pending:
                shares = [(p.position - last) / (number - last) for p in pending]
                off = correction.take_back([held.lerp(denoised, share) for share in shares])
            pending, held, last = [], denoised, number
        given = denoised if correction is None else correction.given(place, x, denoised, off, mask)
        given = given if mask is None else given * mask + keep * (1 - mask)
        update = SAMPLERS[solver].update(place, places[-1] if places else None)
        x = update.keep * x + update.now * given + (update.before * given_before if update.before else 0.0)
        given_before = given
        places.append(place)
        x = x if moved is None else moved(x, number)
    return x


def drive(rule, predict, levels=LEVELS, blend=None, x=None, solver="euler", moved=None, refused=False):
    """Run a solver with a rule around ``predict(x, sigma)``; return its actions and the latent.

    ``moved(x, number)`` changes the latent after each step; what is ``refused`` is computed all the same.
    """
    if x is None:
        x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)) * levels[0]
    actions, last, before = [], None, None
    for number, level in enumerate(levels[:-1]):
        place = rule.place_of(level)
        actions.append(rule.begin(place))
        assert rule.skip_at(place) == rule.skip_at(place) == rule.skip  # to ask changes nothing
        if refused:
            rule.compute()
        given = rule.end(x, rule.forecast(x) if rule.skips else predict(x, level), blend)
        update = SAMPLERS[solver].update(place, last)
        x = update.keep * x + update.now * given + (update.before * before if update.before else 0.0)
        x, last, before = (x if moved is None else moved(x, number)), place, given
    rule.read()
    return actions, x


def smooth(x, sigma):
    return x / (1 + sigma**2) + 0.5
