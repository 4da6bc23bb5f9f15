"""An ordinary run that is observed: the picture stays what it is, and what was seen can be evaluated and replayed."""

import gc
import weakref

import model_changes as changes
import pytest
import torch
from cases import often
from clock import Clock
from comfy_host import in_process, transformers, vaes
from paceline.measure.replay import replay
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.in_comfyui.compilation import comfy_env
from paceline.optimizers.step_reuse.path import LEFT_OUT
from paceline.service.comfyui import observer as observing
from paceline.service.comfyui.evaluating import Steps
from paceline.service.comfyui.observer import Observer
from paceline.service.comfyui.probe import probe
from reusing import outcome, reuse
from trust.trust_nodes import others
from vae_calls import decode, latent

pytestmark = pytest.mark.slow


def check(draw, model):
    """Draw with and without an observer; return what it saw, which the plain model must answer again bit for bit."""
    observer = Observer()
    assert torch.equal(draw(observer.on(model, "link")), draw(model))
    (sampling,) = observer.samplings
    assert sampling.evaluations == len(sampling.seen) and sampling.link == "link" and sampling.can_probe
    with torch.inference_mode():
        outputs = Steps(sampling).again(sampling.model, None, sampling.points)
    for (number, *_), (output, _) in zip(sampling.points, outputs, strict=True):
        assert torch.equal(sampling.sketch.of(output), sampling.seen[number].guided)
    return sampling


@pytest.mark.parametrize("name", often(("ltx2",), transformers.ALL))
def test_every_family_draws_the_same(studio, name):
    sampling = check(lambda model: studio.draw(name, model, steps=3, cfg=4.0), transformers.build(name))
    assert sampling.evaluations == 3
    parts = sampling.sketch.split(sampling.seen[0].guided)
    assert len(parts) == (2 if name in transformers.WITH_SOUND else 1)
    assert parts[0].shape[1] == max(1, transformers.ALL[name].frames)


SAMPLERS = ("euler", "heun", "dpmpp_2m_sde", "dpm_adaptive", "uni_pc", "euler_cfg_pp", "dpmpp_sde", "lcm")


@pytest.mark.parametrize("sampler", often(("heun",), SAMPLERS))
def test_any_sampler(studio, sampler):
    sampling = check(lambda model: studio.sample(model, (8, 8), 2, steps=8, sampler=sampler), studio.model)
    assert sampling.solver == sampler and len(sampling.levels) == 9
    assert sampling.evaluations >= 8 and len(sampling.seen[0].guided) == 2


@pytest.mark.parametrize("change", often(("lora_hook",), ("lora_hook", "controlnet", "no_negative", "batch_of_two")))
def test_any_conditions(studio, change):
    more = changes.SAMPLING_CHANGES[change](studio)
    check(lambda model: studio.sample(model, steps=6, **more), studio.model)


def test_memory_is_bounded_and_given_back(studio, monkeypatch):
    monkeypatch.setattr(observing, "MOST_BYTES", 6 * 4 * 24 * 16 * 4)  # six latents, of which three are the arguments
    observer = Observer()
    model = observer.on(studio.model)
    studio.sample(model, steps=8)
    studio.sample(model, steps=8)
    first, second = observer.samplings
    assert len(first.points) == 3 and not second.can_probe and observer.bytes <= observing.MOST_BYTES
    kept = weakref.ref(first.points[0][2])
    observer.forget()
    assert observer.bytes == 0 and not observer.samplings
    del first, second
    gc.collect()
    assert kept() is None


def test_without_keeping_only_counts_are_there(studio):
    observer = Observer(keep=False)
    reused = observer.on(reuse(studio, studio.model))
    studio.sample(reused, steps=12)
    (sampling,) = observer.samplings
    assert not sampling.seen and not sampling.can_probe and sampling.evaluations == 12
    assert sampling.computed == 2 * outcome(reused).computed < 24


def test_a_model_that_leaves_out_steps_is_not_probed(studio, core_node):
    for model in (reuse(studio, studio.model), changes.easycache(studio, core_node, studio.model)):
        observer = Observer()
        studio.sample(observer.on(model), steps=8)
        assert not observer.samplings[0].can_probe


def test_a_cache_without_a_mark_is_seen_and_our_own_is_not_taken_for_it(studio):
    observer = Observer()
    for model in (others.cache(studio.model)[0], studio.model, reuse(studio, studio.model, budget=1.0)):
        studio.sample(observer.on(model), (8, 8), steps=16)
    cached, plain, ours = observer.samplings
    assert cached.refusals == [LEFT_OUT] and plain.refusals == ours.refusals == []


def test_a_replay_leaves_out_what_the_node_leaves_out(studio, icons):
    """A replay sees the errors along the plain run, the node along its own."""
    model, encode = icons

    def draw(model):
        return in_process.sample(
            model, encode("red heart flat"), encode(""), torch.zeros(1, 4, 32, 32), 5, 20, 3.0, "dpmpp_2m", "karras"
        )

    observer = Observer()
    draw(observer.on(model))
    (sampling,) = observer.samplings
    for budget in (0.0, 0.05, 0.3):
        reused = reuse(studio, model, budget=budget)
        draw(reused)
        done, found = outcome(reused), replay(sampling, budget)
        assert abs(found.evaluations - found.computed - done.forecast) <= 2, (found, done)
        assert (found.work == 1.0) == (budget == 0.0)
    sampling.levels = sampling.levels[-4:]
    sampling.replayed.clear()
    assert "too few" in replay(sampling, 0.2).why_not


def test_a_probe_ranks_and_leaves_the_network_as_it_is(studio):
    observer, calls = Observer(), []
    studio.sample(observer.on(studio.model), steps=12)

    def refused(model):
        raise UnsupportedModel("not here", "nothing to do")

    def failing(model):
        def fail(*_, **__):
            raise RuntimeError("no kernel")

        clone = model.clone()
        clone.add_wrapper_with_key("apply_model", "fail", fail)
        return clone

    candidates = {
        "merged": lambda model: studio.tome(model, ratio=0.5),
        "exact": lambda model: studio.attention(model, "sdpa_math"),
        "refused": refused,
        "failing": failing,
    }
    observer.samplings[0].sampling_seconds = 1000.0  # however long this machine takes
    modules = [*studio.model.model.diffusion_model.modules()]
    own = [dict(vars(module)) for module in modules]
    with torch.inference_mode():
        found = probe(observer.samplings[0], candidates, calls.append)
    assert [one.name for one in found] == list(candidates)
    merged, exact, *failed = found
    assert merged.error > 100 * exact.error and exact.error < 1e-3 and merged.speedup[1] > 0
    assert ["not here" in failed[0].why_not, failed[1].why_not] == [True, "no kernel"]
    assert calls[0] == 0 and calls[-1] == 1 and calls == sorted(calls)
    assert all(vars(module) == before for module, before in zip(modules, own, strict=True))


def test_what_changes_nothing_is_not_evaluated_and_what_did_nothing_is_no_gain(studio, monkeypatch):
    """The first is known before an evaluation, the second from what its node reports of them."""
    from paceline.optimizers.in_comfyui.comfy_attention import host_does

    assert host_does("sdpa")
    observer, evaluated = Observer(), []
    studio.sample(observer.on(studio.model), steps=8)

    def noted(name, change):
        def counting(executor, *args, **kwargs):
            evaluated.append(name)
            return executor(*args, **kwargs)

        def made(model):
            clone = change(model)
            clone.add_wrapper_with_key("apply_model", "noted", counting)
            return clone

        return made

    candidates = {
        "attention": noted("attention", lambda model: studio.attention(model, "auto")),
        "merged": noted("merged", lambda model: studio.tome(model, ratio=0.0)),
    }
    with torch.inference_mode():
        attention, merged = probe(observer.samplings[0], candidates)
    assert attention.why_not == "ComfyUI's own attention is sdpa already, so it changes nothing"
    assert merged.why_not and set(evaluated) == {"merged"} and len(evaluated) <= 8
    assert "faster" not in (attention.state, merged.state)


def planted_clock(monkeypatch, kind):
    """Return a clock by which a plain block takes a second, and one compiled by the backend ``planted`` half of one."""
    from torch._dynamo.backends import registry

    clock, parts = Clock(monkeypatch, kind), []

    def planted(graph, inputs):
        def run(*values):
            clock.now += 0.5 * clock.busy / len(parts)
            return graph.forward(*values)

        parts.append(graph)
        return run

    planted._tags = ()
    monkeypatch.setitem(registry._BACKENDS, "planted", None)
    monkeypatch.setitem(registry._COMPILER_FNS, "planted", planted)
    return clock


def in_blocks(clock, studio, seconds):
    """Return a change by which each block takes so many seconds more or less."""
    from comfy.patcher_extension import WrappersMP

    def change(model):
        def at_blocks(executor, *args, **kwargs):
            own, clock.busy = clock.busy, clock.busy * seconds
            try:
                return executor(*args, **kwargs)
            finally:
                clock.busy = own

        clone = model.clone()
        clone.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "seconds", at_blocks)
        return clone

    return change


@pytest.fixture
def observed(studio, monkeypatch):
    """A run of which only blocks take time, and the clock of the test."""
    from comfy.ldm.modules.attention import BasicTransformerBlock

    clock, observer = planted_clock(monkeypatch, BasicTransformerBlock), Observer()
    studio.sample(observer.on(studio.model), steps=24)
    (sampling,) = observer.samplings
    return sampling, clock


def compiled(studio, **settings):
    return lambda model: studio.run("PacelineCompileUNet", model=model, backend="planted", **settings)


def test_one_block_of_each_kind_stands_for_all_places(studio, observed):
    sampling, clock = observed
    changes = {"half": in_blocks(clock, studio, 0.5), "slower": in_blocks(clock, studio, 1.25)}
    with torch.inference_mode():
        half, slower = probe(sampling, changes)
    assert half.speedup == pytest.approx((2.0, 2.0, 2.0)) and half.state == "faster" and half.error < 1e-5
    assert slower.speedup[1] == pytest.approx(0.8) and slower.state == "slower" and slower.clear


def test_compile_is_tried_by_the_kind_of_block_that_takes_longest(studio, observed, monkeypatch):
    """Half of the time is left of it; of other kinds that is likely, and counted where the cautious end is."""
    from paceline.optimizers.compilation.compiled import CompiledFunction

    (sampling, _), compiled_now = observed, list[str]()
    own = CompiledFunction._compiled_function
    monkeypatch.setattr(
        CompiledFunction, "_compiled_function", lambda self: (compiled_now.append(self.name), own(self))[1]
    )
    with torch.inference_mode():
        (found,) = probe(sampling, {"Compile UNet": compiled(studio, recompile_limit=7)})
    assert found.speedup[1] == pytest.approx(2.0) and 1 < found.speedup[0] < 2 and found.state == "faster"
    assert len({*compiled_now}) == 1 and found.points == 1


def compiled_vae(studio, backend):
    both = {"compile_decoder": True, "compile_encoder": True}
    return lambda vae: studio.run("PacelineCompileVAE", vae=vae, backend=backend, **both)


def decoding_of(vae, **tiling):
    observer = Observer()
    assert torch.equal(decode(observer.on_vae(vae, "1"), latent(), **tiling), decode(vae, latent(), **tiling))
    (decoding,) = observer.decodings
    return decoding


@pytest.mark.parametrize("tiling", [{}, {"tile_x": 8, "tile_y": 8, "overlap": 2}], ids=["whole", "tiles"])
def test_compile_vae_is_tried_by_a_block_of_the_decoder(studio, monkeypatch, fresh_compiler, tiling):
    """Two of four blocks are those that repeat, so a third of the time is left out where each takes half of it."""
    from comfy.ldm.modules.diffusionmodules.model import ResnetBlock

    planted_clock(monkeypatch, ResnetBlock).busy = 1 / 64
    vae = vaes.kl(levels=1)
    decoding, modules = decoding_of(vae, **tiling), [*vae.first_stage_model.modules()]
    own = [dict(vars(module)) for module in modules]
    with torch.inference_mode():
        (found,) = probe(decoding, {"Compile VAE": compiled_vae(studio, "planted")})
    assert found.speedup[1] == pytest.approx(4 / 3) and found.state == "faster" and found.points == 1
    assert all(vars(module) == before for module, before in zip(modules, own, strict=True))


def test_a_vae_whose_decoder_repeats_no_block_is_not_tried(studio):
    with torch.inference_mode():
        (found,) = probe(decoding_of(vaes.taesd()), {"Compile VAE": compiled_vae(studio, "eager")})
    assert found.why_not == "it has no repeated block that could be tried alone"


def test_what_cannot_be_compiled_is_said(studio, observed, monkeypatch):
    from torch._dynamo.backends.registry import _COMPILER_FNS

    def broken(graph, inputs):
        raise OSError("no C++ compiler")

    broken._tags = ()
    monkeypatch.setitem(_COMPILER_FNS, "planted", broken)
    sampling, _ = observed
    with torch.inference_mode():
        (found,) = probe(sampling, {"Compile UNet": compiled(studio)})
    assert "no C++ compiler" in found.why_not and found.state == "refused"


def test_what_a_busy_machine_adds_is_in_what_is_found(studio, observed):
    """Blocks take twice as long at first, as while another program runs: no gain that is smaller can be told."""
    sampling, clock = observed

    def now_and_then(model):
        def call(executor, *args, **kwargs):
            clock.calls += 1
            clock.busy = 2.0 if clock.calls // 4 % 2 else 1.0
            return executor(*args, **kwargs)

        model.add_wrapper_with_key("apply_model", "busy", call)
        return model

    clock.calls, sampling.model = 0, now_and_then(sampling.model.clone())
    with torch.inference_mode():
        (found,) = probe(sampling, {"a little": in_blocks(clock, studio, 0.7)})
    assert found.noise == pytest.approx(2.0, rel=0.2) and found.state == "drowned"


@pytest.mark.parametrize(("given", "state"), [(5, "untried"), (20, "refused")])
def test_what_had_little_time_to_compile_is_not_given_up(studio, observed, given, state):
    sampling, clock = observed
    clock.busy = 0.01

    def compiles(executor, *args, **kwargs):
        clock.now += 60
        comfy_env.watch(None, None)
        return executor(*args, **kwargs)

    def slow(model):
        clone = model.clone()
        clone.add_wrapper_with_key("apply_model", "compiles", compiles)
        return clone

    with torch.inference_mode():
        (found,) = probe(sampling, {"slow": slow}, deadline=clock.now + given)
    assert found.state == state and ("longer than the 20 s of this test" in found.why_not) == (state == "refused")


@pytest.mark.parametrize("slow", [1, 4])
def test_a_probe_ends_in_time_however_slow_the_machine_has_become(studio, observed, slow):
    sampling, clock = observed
    sampling.sampling_seconds, clock.busy, clock.now = 24.0, slow / 7, 0.0
    changes = {"first": in_blocks(clock, studio, 0.5), "second": in_blocks(clock, studio, 2.0)}
    with torch.inference_mode():
        found = probe(sampling, changes)
    assert [one.state == "faster" for one in found] == [slow == 1, False] and clock.now < 30 + 2 * slow
    with torch.inference_mode():
        (found,) = probe(sampling, {"first": changes["first"]}, deadline=clock.now + slow)
    assert found.state == "untried"
