"""Random graphs: everything that people put between a loader and a picture, from a seed that repeats it.

A graph is made of a plain one, which has ComfyUI's own nodes only, and of our nodes at any places of its chains of
models. So both draw the same picture, but for what ours change. Nodes and their settings come from the server's
description of them: a new node of ours takes part from the day it is there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from schemas import WIDGETS, Input, inputs_of, legal
from tables import CORE, LINKS, SHAPES, SLOW_SAMPLERS, TRANSFORMERS, UNETS, UNETS_ONLY

Prompt = dict[str, dict[str, Any]]
Link = list[Any]


@dataclass
class Graph:
    """A random graph.

    Attributes:
        seed: repeats it.
        kind: of the model.
        shape: what is done with the model.
        ours: nodes of ours in it, as (class, inputs).
        core: nodes of ComfyUI that change the model.
        fault: what happens in the middle of an extra run: "none", "memory", "error", "cancel".
        unload: whether models are unloaded between the runs.
    """

    seed: int
    kind: str
    shape: str
    ours: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    core: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fault: str = "none"
    unload: bool = False
    _chains: list[list[tuple[str, dict[str, Any]]]] = field(default_factory=list)

    def __str__(self) -> str:
        names = [f"{name}{inputs}" for chain in self._chains for name, inputs in chain]
        return f"graph {self.seed}: {self.kind}, {self.shape}, {self.fault}: {' > '.join(names)}"

    def without(self, node_class: str) -> Graph:
        """Return the graph without all nodes of a class of ours, e.g. those that have refused."""
        left = Graph(self.seed, self.kind, self.shape, fault=self.fault, unload=self.unload)
        left._chains = [[node for node in chain if node[0] != node_class] for chain in self._chains]
        left.ours = [node for node in self.ours if node[0] != node_class]
        left.core = self.core
        return left

    def prompt(self, optimized: bool, copy: int, again: int, fault: str = "none", truth: str = "") -> Prompt:
        """Return the graph in API format.

        Args:
            optimized: with our nodes.
            copy: which copies of the models to use; another number is another object with the same weights.
            again: another number makes ComfyUI sample again instead of showing what it has kept.
            fault: what happens while it samples.
            truth: a name under which calls are counted; empty to count none.
        """
        return _Builder(self, optimized, copy, again, fault, truth).build()


class Generator:
    """Makes graphs from seeds.

    Args:
        object_info: what the server says about all nodes.
        compiled: share of graphs that may have a node that compiles; tracing takes seconds.
    """

    def __init__(self, object_info: dict[str, Any], compiled: float = 0.1) -> None:
        self.compiled = compiled
        self.core = {name: list(inputs_of(object_info[name])) for name in CORE if name in object_info}
        self.core = {name: inputs for name, inputs in self.core.items() if _model_node(object_info[name], inputs)}
        self.ours = {name: list(inputs_of(info)) for name, info in object_info.items() if name.startswith("Paceline")}
        self.ours = {name: inputs for name, inputs in self.ours.items() if _model_node(object_info[name], inputs)}
        self.sampler = {entry.name: entry for entry in inputs_of(object_info["KSampler"])}
        self.sampler["sampler_name"].options["options"] = [
            name for name in self.sampler["sampler_name"].choices if name not in SLOW_SAMPLERS
        ]

    def graph(self, seed: int) -> Graph:
        """Return the graph of this seed."""
        draw = random.Random(seed)
        is_unet = draw.random() < 0.6
        kind = draw.choice(UNETS if is_unet else TRANSFORMERS)
        shape = draw.choice(SHAPES)
        if shape == "controlnet":
            kind = "sd15"
        graph = Graph(seed, kind, shape)
        graph.fault = draw.choice(["none"] * 5 + ["memory", "error", "cancel"])
        graph.unload = draw.random() < 0.2
        compiled = draw.random() < self.compiled
        for _ in range(2):  # the second chain is for the second sampler, or the second model of a guider
            chain: list[tuple[str, dict[str, Any]]] = []
            for _ in range(draw.choice([0, 0, 1, 1, 2, 3])):
                chain.append(self._node(draw, self.core, kind, compiled=False))
            for _ in range(draw.choice([1, 1, 2, 3, 4])):
                chain.insert(draw.randint(0, len(chain)), self._node(draw, self.ours, kind, compiled))
            graph._chains.append(chain)
        graph.ours = [node for chain in graph._chains for node in chain if node[0] in self.ours]
        graph.core = [node for chain in graph._chains for node in chain if node[0] in self.core]
        return graph

    def _node(self, draw: random.Random, table: dict[str, list[Input]], kind: str, compiled: bool) -> Any:
        allowed = [name for name in sorted(table) if compiled or "Compile" not in name]
        if kind not in UNETS:
            allowed = [name for name in allowed if name not in UNETS_ONLY]
        if compiled and draw.random() < 0.4:
            allowed = [name for name in allowed if "Compile" in name] or allowed
        name = draw.choice(allowed)
        while name == "PacelineQuantizeInt8" and kind == "sdxl" and draw.random() < 0.9:
            name = draw.choice(allowed)  # to look at its 700 layers takes a minute
        inputs: dict[str, Any] = {}
        for entry in table[name]:
            if entry.kind in WIDGETS:
                inputs[entry.name] = legal(entry, draw)
            elif entry.kind == "MODEL":
                inputs[entry.name] = "chain" if "chain" not in inputs.values() else "other"
            elif entry.kind in LINKS and draw.random() < 0.3:
                inputs[entry.name] = entry.kind
        if name.startswith("PacelineCompile"):
            inputs["backend"] = "eager"  # traces as any other; generating code would take half a minute for each graph
            inputs["mode"] = "default"
        if name == "PacelineQuantizeInt8" and draw.random() < 0.5:
            inputs["include"] = "attn|ff|mlp"
        return name, inputs


def _model_node(info: dict[str, Any], inputs: list[Input]) -> bool:
    """Return whether a node makes a MODEL of a MODEL and of what we can give."""
    known = (*WIDGETS, "MODEL")
    needed = all(entry.optional or entry.kind in known for entry in inputs)
    return needed and info["output"][:1] == ["MODEL"] and any(entry.kind == "MODEL" for entry in inputs)


class _Builder:
    """Writes one prompt."""

    def __init__(self, graph: Graph, optimized: bool, copy: int, again: int, fault: str, truth: str) -> None:
        self.graph, self.optimized, self.copy, self.again = graph, optimized, copy, again
        self.fault, self.truth = fault, truth
        self.draw = random.Random(f"shape {graph.seed}")
        self.nodes: Prompt = {}

    def add(self, node_class: str, **inputs: Any) -> str:
        name = f"{len(self.nodes)}"
        self.nodes[name] = {"class_type": node_class, "inputs": inputs}
        return name

    def build(self) -> Prompt:
        draw = self.draw
        self.height, self.width = draw.choice([(16, 24), (24, 16), (8, 8), (20, 12), (16, 16)])
        if self.graph.kind in UNETS and draw.random() < 0.2:
            self.height, self.width = draw.choice([(17, 23), (9, 31), (13, 13)])
        self.loader = self.add("TrustModel", kind=self.graph.kind, seed=0, copy=self.copy)
        self.positive, self.negative, self.third = ([self.loader, number] for number in (1, 2, 3))
        shape = self.graph.shape
        self.batch = draw.choice([2, 3, 7]) if shape == "batch" else draw.choice([1, 1, 1, 2])
        latent = getattr(self, f"_{shape}", self._plain)(draw)
        self.add("TrustKeep", samples=latent, name="kept", truth=self.truth)
        return self.nodes

    def model(self, number: int = 0) -> Link:
        """Return the end of a chain of nodes that change a model."""
        link: Link = [self.loader, 0]
        for name, inputs in self.graph._chains[number]:
            if name.startswith("Paceline") and not self.optimized:
                continue
            given = {key: self._linked(value, link) for key, value in inputs.items()}
            link = [self.add(name, **given), 0]
        if self.fault != "none" or self.again >= 0:
            link = [
                self.add("TrustFault", model=link, fault=self.fault, at_call=2, where="network", again=self.again),
                0,
            ]
        if self.truth and number == 0:
            link = [self.add("TrustTruth", model=link, name=self.truth), 0]
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
            return [self.add("TrustVAE", kind="taesd", copy=self.copy), 0]
        return value

    def latent(self, noise: bool, batch: int | None = None) -> Link:
        sizes = {"height": self.height, "width": self.width, "batch": batch or self.batch}
        return [self.add("TrustLatent", kind=self.graph.kind, noise=noise, **sizes), 0]

    def sampled(self, model: Link, latent: Link, **changes: Any) -> Link:
        draw = random.Random(f"sampler {self.graph.seed}")
        chosen = {
            "seed": 7,
            "steps": draw.choice([2, 2, 3, 4]),
            "cfg": draw.choice([7.0, 7.0, 4.0, 1.0]),
            "sampler_name": draw.choice(
                ["euler", "euler", "dpmpp_2m", "heun", "lcm", "ddim", "uni_pc", "euler_ancestral"]
            ),
            "scheduler": draw.choice(["normal", "karras", "simple", "sgm_uniform"]),
            "denoise": 1.0,
        }
        links = {"model": model, "positive": self.positive, "negative": self.negative, "latent_image": latent}
        return [self.add("KSampler", **{**links, **chosen, **changes}), 0]

    # ---- what people do with a model

    def _plain(self, draw: random.Random) -> Link:
        return self.sampled(self.model(), self.latent(noise=False))

    def _img2img(self, draw: random.Random) -> Link:
        return self.sampled(self.model(), self.latent(noise=True), denoise=draw.choice([0.3, 0.6, 0.9]))

    def _hires(self, draw: random.Random) -> Link:
        model = self.model()
        first = self.sampled(model, self.latent(noise=False))
        larger = self.add("LatentUpscaleBy", samples=first, upscale_method="bilinear", scale_by=draw.choice([1.5, 2.0]))
        second = model if draw.random() < 0.5 else self.model(1)
        return self.sampled(second, [larger, 0], denoise=0.5)

    def _inpaint(self, draw: random.Random) -> Link:
        mask = [self.add("TrustMask", upper=draw.random() < 0.5), 0]
        masked = [self.add("SetLatentNoiseMask", samples=self.latent(noise=True), mask=mask), 0]
        return self.sampled(self.model(), masked, denoise=draw.choice([1.0, 0.7]))

    def _regional(self, draw: random.Random) -> Link:
        if draw.random() < 0.5:
            mask = [self.add("TrustMask", upper=True), 0]
            area = self.add(
                "ConditioningSetMask",
                conditioning=self.third,
                mask=mask,
                strength=1.0,
                set_cond_area=draw.choice(["default", "mask bounds"]),
            )
        else:
            area = self.add(
                "ConditioningSetAreaPercentage",
                conditioning=self.third,
                width=0.5,
                height=1.0,
                x=0.0,
                y=0.0,
                strength=0.8,
            )
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
        common = {
            "noise_seed": 7,
            "steps": 4,
            "cfg": 5.0,
            "sampler_name": "euler",
            "scheduler": "normal",
            "positive": self.positive,
            "negative": self.negative,
        }
        first = self.add(
            "KSamplerAdvanced",
            model=self.model(),
            latent_image=self.latent(noise=False),
            add_noise="enable",
            start_at_step=0,
            end_at_step=2,
            return_with_leftover_noise="enable",
            **common,
        )
        second = self.add(
            "KSamplerAdvanced",
            model=self.model(1),
            latent_image=[first, 0],
            add_noise="disable",
            start_at_step=2,
            end_at_step=10000,
            return_with_leftover_noise="disable",
            **common,
        )
        return [second, 0]

    def _guided(self, guider: Link, model: Link) -> Link:
        sigmas = [self.add("BasicScheduler", model=model, scheduler="simple", steps=3, denoise=1.0), 0]
        noise, sampler = self.add("RandomNoise", noise_seed=7), self.add("KSamplerSelect", sampler_name="euler")
        done = self.add(
            "SamplerCustomAdvanced",
            noise=[noise, 0],
            guider=guider,
            sampler=[sampler, 0],
            sigmas=sigmas,
            latent_image=self.latent(noise=False),
        )
        return [done, 0]

    def _guider(self, draw: random.Random) -> Link:
        model = self.model()
        guider = self.add("CFGGuider", model=model, positive=self.positive, negative=self.negative, cfg=4.0)
        return self._guided([guider, 0], model)

    def _dual_cfg(self, draw: random.Random) -> Link:
        model = self.model()
        guider = self.add(
            "DualCFGGuider",
            model=model,
            cond1=self.positive,
            cond2=self.third,
            negative=self.negative,
            cfg_conds=4.0,
            cfg_cond2_negative=3.0,
            style=draw.choice(["regular", "nested"]),
        )
        return self._guided([guider, 0], model)

    def _dual_model(self, draw: random.Random) -> Link:
        model = self.model()
        guider = self.add(
            "DualModelGuider",
            model=model,
            model_negative=self.model(1),
            positive=self.positive,
            negative=self.negative,
            cfg=4.0,
        )
        return self._guided([guider, 0], model)

    def _perp_neg(self, draw: random.Random) -> Link:
        model = self.model()
        guider = self.add(
            "PerpNegGuider",
            model=model,
            positive=self.positive,
            negative=self.negative,
            empty_conditioning=self.third,
            cfg=5.0,
            neg_scale=1.0,
        )
        return self._guided([guider, 0], model)

    def _controlnet(self, draw: random.Random) -> Link:
        control = [self.add("TrustControlNet", copy=self.copy), 0]
        if self.optimized and draw.random() < 0.3:
            control = [self.add("PacelineRemoveOptimizations", control_net=control), 2]
        applied = self.add(
            "ControlNetApplyAdvanced",
            positive=self.positive,
            negative=self.negative,
            control_net=control,
            image=[self.add("TrustHint", seed=1), 0],
            strength=0.8,
            start_percent=0.0,
            end_percent=draw.choice([1.0, 0.5]),
        )
        return self.sampled(self.model(), self.latent(noise=False), positive=[applied, 0], negative=[applied, 1])
