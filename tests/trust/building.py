"""Writes a random graph as a prompt: loader, chains of nodes, and what people do with a model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from executing import node
from tables import UNETS

if TYPE_CHECKING:
    from graphs import Graph

SAMPLERS = ("euler", "euler", "dpmpp_2m", "heun", "lcm", "ddim", "uni_pc", "euler_ancestral")
Prompt = dict[str, dict[str, Any]]
Link = list[Any]


class Builder:
    """Writes one prompt."""

    def __init__(self, graph: Graph, optimized: bool, copy: int, again: int, fault: str, truth: str) -> None:
        self.graph, self.optimized, self.copy, self.again = graph, optimized, copy, again
        self.sampling = {**graph.more_steps, **graph.sampling}
        self.fault, self.truth = fault, truth
        self.draw = random.Random(f"shape {graph.seed}")
        self.nodes: Prompt = {}

    def add(self, node_class: str, **inputs: Any) -> str:
        name = f"{len(self.nodes)}"
        self.nodes[name] = node(node_class, **inputs)
        return name

    def build(self) -> Prompt:
        draw = self.draw
        self.height, self.width = draw.choice([(16, 24), (24, 16), (8, 8), (20, 12), (16, 16)])
        if self.graph.kind in UNETS and draw.random() < 0.2:
            self.height, self.width = draw.choice([(17, 23), (9, 31), (13, 13)])
        self.loader = self.add("TrustModel", kind=self.graph.kind, seed=0, copy=self.copy)
        self.positive, negative, self.third = ([self.loader, number] for number in (1, 2, 3))
        self.passes = {"positive": self.positive, "negative": negative}
        shape = self.graph.shape
        self.batch = draw.choice([2, 3, 7]) if shape == "batch" else draw.choice([1, 1, 1, 2])
        latent = getattr(self, f"_{shape}", self._plain)(draw)
        self.add("TrustKeep", samples=latent, name="kept", truth=self.truth)
        return self.nodes

    def model(self, number: int = 0) -> Link:
        """Return the end of a chain of nodes that change a model."""
        link: Link = [self.loader, 0]
        for name, inputs in self.graph.chains[number]:
            if name.startswith("Paceline") and not self.optimized:
                continue
            given = {key: self._linked(value, link) for key, value in inputs.items()}
            link = [self.add(name, **given), 0]
        link = [self.add("TrustFault", model=link, fault=self.fault, at_call=2, again=self.again), 0]
        if self.truth and number == 0:
            counting = "TrustSteps" if self.graph.sampling else "TrustTruth"
            link = [self.add(counting, model=link, name=self.truth), 0]
        return link

    def _linked(self, value: Any, link: Link) -> Any:
        if value == "chain":
            return link
        if value == "other":
            return [self.add("TrustModel", kind=self.graph.kind, seed=1, copy=self.copy), 0]
        if value == "LATENT":
            return self.latent(noise=False)
        if value == "CONDITIONING":
            return self.positive
        if value == "VAE":
            return [self.add("TrustVAE", copy=self.copy), 0]
        if value == "MASK":
            return [self.add("TrustMask", upper=True), 0]
        if value == "SAMPLER":
            return [self.add("KSamplerSelect", sampler_name="euler"), 0]
        if value == "SIGMAS":
            schedule = {"scheduler": "simple", "steps": 10, "denoise": 1.0}
            return [self.add("BasicScheduler", model=link, **schedule), 0]
        return value

    def latent(self, noise: bool, batch: int | None = None) -> Link:
        sizes = {"height": self.height, "width": self.width, "batch": batch or self.batch}
        return [self.add("TrustLatent", kind=self.graph.kind, noise=noise, **sizes), 0]

    def sampled(self, model: Link, latent: Link, **changes: Any) -> Link:
        draw = random.Random(f"sampler {self.graph.seed}")
        chosen = {
            "seed": 7,
            "denoise": 1.0,
            "steps": draw.choice([2, 2, 3, 4]),
            "cfg": draw.choice([7.0, 7.0, 4.0, 1.0]),
        }
        chosen["sampler_name"] = draw.choice(SAMPLERS)
        chosen["scheduler"] = draw.choice(["normal", "karras", "simple", "sgm_uniform"])
        links = {"model": model, **self.passes, "latent_image": latent}
        return [self.add("KSampler", **{**links, **chosen, **changes, **self.sampling}), 0]

    # ---- what people do with a model

    def _plain(self, draw: random.Random) -> Link:
        return self.sampled(self.model(), self.latent(noise=False))

    def _by_others(self, draw: random.Random) -> Link:
        """Sample with a node of another pack, or with the sampler or the schedule that it makes."""
        chosen, model, latent = self.graph.by_others, self.model(), self.latent(noise=False)
        given = {"MODEL": model, "LATENT": latent}
        passes = {name: link for name, link in self.passes.items() if name in chosen.inputs}
        made = {name: given.get(value) or self._linked(value, model) for name, value in chosen.inputs.items()}
        node = [self.add(chosen.name, **{**made, **passes}), chosen.output]
        if chosen.what == "LATENT":
            return node
        return self._custom(model, latent, **{"sampler" if chosen.what == "SAMPLER" else "sigmas": node})

    def _custom(self, model: Link, latent: Link, **links: Link) -> Link:
        links = {"sampler": self._linked("SAMPLER", model), "sigmas": self._linked("SIGMAS", model), **links}
        settings = {"add_noise": True, "noise_seed": 7, "cfg": 4.0}
        return [self.add("SamplerCustom", model=model, **self.passes, latent_image=latent, **links, **settings), 0]

    def _rising(self, draw: random.Random) -> Link:
        model = self.model()
        sigmas = [self.add("TrustRising", sigmas=self._linked("SIGMAS", model)), 0]
        return self._custom(model, self.latent(noise=False), sigmas=sigmas)

    def _resizing(self, draw: random.Random) -> Link:
        settings = {"scale_ratio": draw.choice([1.5, 2.0]), "scale_steps": draw.choice([3, 5])}
        sampler = [self.add("SamplerLCMUpscale", **settings, upscale_method="bilinear"), 0]
        return self._custom(self.model(), self.latent(noise=False), sampler=sampler)

    def _one_for_two(self, draw: random.Random) -> Link:
        """Two samplers with the same nodes, of which each has one report."""
        model = self.model()
        first = self.sampled(model, self.latent(noise=False))
        return self.sampled(model, first, denoise=draw.choice([0.5, 1.0]))

    def _img2img(self, draw: random.Random) -> Link:
        return self.sampled(self.model(), self.latent(noise=True), denoise=draw.choice([0.3, 0.6, 0.9]))

    def _hires(self, draw: random.Random) -> Link:
        model = self.model()
        first = self.sampled(model, self.latent(noise=False))
        larger = self.add("LatentUpscaleBy", samples=first, upscale_method="bilinear", scale_by=draw.choice([1.5, 2.0]))
        second = model if draw.random() < 0.5 else self.model(1)
        return self.sampled(second, [larger, 0], denoise=0.5)

    def _inpaint(self, draw: random.Random) -> Link:
        mask = [self.add("TrustMask", upper=draw.random() < 0.5, graded=draw.random() < 0.5), 0]
        masked = [self.add("SetLatentNoiseMask", samples=self.latent(noise=True), mask=mask), 0]
        return self.sampled(self.model(), masked, denoise=draw.choice([1.0, 0.7]))

    def _regional(self, draw: random.Random) -> Link:
        if draw.random() < 0.5:
            mask = [self.add("TrustMask", upper=True), 0]
            place = {"mask": mask, "strength": 1.0, "set_cond_area": draw.choice(["default", "mask bounds"])}
            area = self.add("ConditioningSetMask", conditioning=self.third, **place)
        else:
            place = {"width": 0.5, "height": 1.0, "x": 0.0, "y": 0.0, "strength": 0.8}
            area = self.add("ConditioningSetAreaPercentage", conditioning=self.third, **place)
        both = self.add("ConditioningCombine", conditioning_1=self.positive, conditioning_2=[area, 0])
        return self.sampled(self.model(), self.latent(noise=False), positive=[both, 0])

    def _timed(self, draw: random.Random) -> Link:
        first = self.add("ConditioningSetTimestepRange", conditioning=self.positive, start=0.0, end=0.5)
        later = self.add("ConditioningSetTimestepRange", conditioning=self.third, start=0.5, end=1.0)
        both = self.add("ConditioningCombine", conditioning_1=[first, 0], conditioning_2=[later, 0])
        return self.sampled(self.model(), self.latent(noise=False), positive=[both, 0], steps=4)

    def _two_samplers(self, draw: random.Random) -> Link:
        first = self.sampled(self.model(), self.latent(noise=False), steps=2)
        return self.sampled(self.model(1), first, denoise=0.5)

    def _advanced(self, draw: random.Random) -> Link:
        common = {"noise_seed": 7, "steps": 4, "cfg": 5.0, "sampler_name": "euler", "scheduler": "normal"}
        common |= {**self.passes, **self.sampling}
        half = common["steps"] // 2
        first = {"add_noise": "enable", "start_at_step": 0, "end_at_step": half, "return_with_leftover_noise": "enable"}
        last = {"add_noise": "disable", "start_at_step": half, "end_at_step": 10000}
        last |= {"return_with_leftover_noise": "disable"}
        model, latent = self.model(), self.latent(noise=False)
        begun = self.add("KSamplerAdvanced", model=model, latent_image=latent, **first, **common)
        return [self.add("KSamplerAdvanced", model=self.model(1), latent_image=[begun, 0], **last, **common), 0]

    def _guided(self, guider: Link, model: Link) -> Link:
        chosen = {"scheduler": "simple", "steps": 3, "sampler_name": "euler", **self.sampling}
        schedule = {name: chosen[name] for name in ("scheduler", "steps")}
        links = {"sigmas": [self.add("BasicScheduler", model=model, denoise=1.0, **schedule), 0]}
        links["noise"] = [self.add("RandomNoise", noise_seed=7), 0]
        links["sampler"] = [self.add("KSamplerSelect", sampler_name=chosen["sampler_name"]), 0]
        links["latent_image"] = self.latent(noise=False)
        return [self.add("SamplerCustomAdvanced", guider=guider, **links), 0]

    def _guider(self, draw: random.Random) -> Link:
        model = self.model()
        return self._guided([self.add("CFGGuider", model=model, **self.passes, cfg=4.0), 0], model)

    def _dual_cfg(self, draw: random.Random) -> Link:
        model = self.model()
        texts = {"cond1": self.positive, "cond2": self.third, "negative": self.passes["negative"]}
        scales = {"cfg_conds": 4.0, "cfg_cond2_negative": 3.0, "style": draw.choice(["regular", "nested"])}
        return self._guided([self.add("DualCFGGuider", model=model, **texts, **scales), 0], model)

    def _dual_model(self, draw: random.Random) -> Link:
        model = self.model()
        # Two clones of one network would share the object patches of one of them, in ComfyUI's own nodes too.
        self.loader = self.add("TrustModel", kind=self.graph.kind, seed=2, copy=self.copy)
        guider = self.add("DualModelGuider", model=model, model_negative=self.model(1), **self.passes, cfg=4.0)
        return self._guided([guider, 0], model)

    def _perp_neg(self, draw: random.Random) -> Link:
        model, scales = self.model(), {"cfg": 5.0, "neg_scale": 1.0}
        guider = self.add("PerpNegGuider", model=model, **self.passes, empty_conditioning=self.third, **scales)
        return self._guided([guider, 0], model)

    def _controlnet(self, draw: random.Random) -> Link:
        control = [self.add(draw.choice(["TrustControlNet", "TrustControlLora"]), copy=self.copy), 0]
        removed = draw.random() < 0.3
        if self.optimized and removed:
            control = [self.add("PacelineRemoveOptimizations", control_net=control), 2]
        hint = [self.add("TrustHint", seed=1), 0]
        given = {"strength": 0.8, "start_percent": 0.0, "end_percent": draw.choice([1.0, 0.5])}
        applied = self.add("ControlNetApplyAdvanced", **self.passes, control_net=control, image=hint, **given)
        return self.sampled(self.model(), self.latent(noise=False), positive=[applied, 0], negative=[applied, 1])
