"""Small stand-ins for what Paceline uses of Stable Diffusion WebUI and Forge, around ComfyUI's real networks.

They do what `optimizers/in_webui/webui_models.py` says and nothing else; `tests/webui/` asks the real hosts.
"""

import copy
from collections import namedtuple
from types import SimpleNamespace

import torch
from torch.nn import Module

Part = namedtuple("Part", "end_at_step cond")  # a prompt up to a step
Composed = namedtuple("Composed", "schedules weight")  # one of the prompts of AND


class Interrupted(BaseException):
    """What WebUI raises in the middle of sampling when somebody presses Interrupt or Skip."""


class Network:
    """ComfyUI's network with its schedule: ``predict`` gives pictures without noise."""

    def __init__(self, model):
        self.unet = model.model.diffusion_model
        self.schedule = model.get_model_object("model_sampling")
        self.latents = model.model.latent_format

    def predict(self, x, sigma, context, **options):
        wide = sigma.view(-1, 1, 1, 1)
        if getattr(self.unet, "num_classes", None) is not None:  # SDXL: sizes and a summary of the prompt
            options["y"] = torch.ones(len(x), self.unet.label_emb[0][0].in_features)
        elif hasattr(self.unet, "vector_in"):  # Flux: the summary alone
            options["y"] = torch.ones(len(x), self.unet.vector_in.in_layer.in_features)
        found = self.unet(
            self.schedule.calculate_input(wide, x), self.schedule.timestep(sigma).float(), context=context, **options
        )
        return self.schedule.calculate_denoised(wide, found, x)


class Inner(Module):
    """A1111: what the denoiser asks for the passes. With ``gives_noise`` as for samplers that count in timesteps."""

    def __init__(self, network, gives_noise):
        super().__init__()
        self.inner_model = SimpleNamespace(alphas_cumprod=alphas(network), model_sampling=network.schedule)
        self.network, self.gives_noise = network, gives_noise

    def forward(self, x, sigma, cond=None):
        if not self.gives_noise:
            return self.network.predict(x, sigma, cond["crossattn"])
        alpha = alphas(self.network)[sigma.long()].view(-1, 1, 1, 1)
        level = ((1 - alpha) / alpha).sqrt()
        latent = x / alpha.sqrt()
        return (latent - self.network.predict(latent, level.flatten(), cond["crossattn"])) / level


class KModel:
    """Forge: the model of a patcher."""

    def __init__(self, network):
        self.network, self.diffusion_model = network, network.unet
        self.computation_dtype = torch.float32
        flow = any(kind.__name__ == "CONST" for kind in type(network.schedule).__mro__)
        self.predictor = SimpleNamespace(prediction_type="const" if flow else "epsilon")

    def apply_model(self, x, t, c_crossattn=None, control=None, transformer_options=None):
        return self.network.predict(x, t, c_crossattn, control=control, transformer_options=dict(transformer_options))


class Patcher:
    """Forge: what is cloned by every extension, with a deep copy of the options."""

    def __init__(self, network):
        self.model, self.model_options, self.controlnet_linked_list = KModel(network), {}, None

    def clone(self):
        other = copy.copy(self)
        other.model_options = copy.deepcopy(self.model_options)
        return other


class Control:
    """Forge: a ControlNet, as far as it is asked."""

    def __init__(self):
        self.calls, self.previous_controlnet, self.timestep_range = 0, None, None

    def get_control(self, x, sigma, cond, count):
        self.calls += 1
        return None


class Denoiser(Module):
    """The guided prediction of both hosts; ``forge`` says whose passes it asks for."""

    def __init__(self, p, timesteps=False):
        super().__init__()
        self.p, self.timesteps = p, timesteps
        self.step, self.total_steps, self.need_last_noise_uncond = 0, 0, False
        self.refined, self.stop_at, self.skip_early = False, None, 0
        self.update_inner_model()

    def update_inner_model(self):
        network = self.p.sd_model.network
        self.inner_model = Inner(network, self.timesteps and not self.p.forge)

    def forward(self, x, sigma, cond, uncond, cond_scale):
        if self.step == self.stop_at:
            raise self.p.stopped_by
        if self.p.refiner is not None and self.step == self.p.refiner_step and not self.refined:
            self.refined, self.p.sd_model = True, self.p.refiner
            self.update_inner_model()
        prompts = [[(_now(one.schedules, self.step), one.weight) for one in image] for image in cond.batch]
        negatives = torch.stack([_now(schedules, self.step) for schedules in uncond])
        passes = self._forge if self.p.forge else self._classic
        guided = passes(x, sigma, prompts, negatives, 1.0 if self.step < self.skip_early else cond_scale)
        self.step += 1
        return guided

    def _classic(self, x, sigma, prompts, negatives, scale):
        rows = [image for image, given in enumerate(prompts) for _ in given]
        positives = torch.stack([tokens for image in prompts for tokens, _ in image])
        if self.step < self.skip_early:  # "Ignore negative prompt during early sampling"
            found = self.inner_model(x[rows], sigma[rows], cond={"crossattn": positives})
            return _combined(found, torch.zeros_like(x), prompts, scale)
        if positives.shape[1] == negatives.shape[1]:
            both = torch.cat([x[rows], x]), torch.cat([sigma[rows], sigma])
            found = self.inner_model(*both, cond={"crossattn": torch.cat([positives, negatives])})
        else:
            first = self.inner_model(x[rows], sigma[rows], cond={"crossattn": positives})
            found = torch.cat([first, self.inner_model(x, sigma, cond={"crossattn": negatives})])
        return _combined(found[: len(rows)], found[len(rows) :], prompts, scale)

    def _forge(self, x, sigma, prompts, negatives, scale):
        if self.timesteps:
            alpha = alphas(self.p.sd_model.network)[sigma.long()].view(-1, 1, 1, 1)
            x, sigma = x / alpha.sqrt(), ((1 - alpha) / alpha).sqrt().flatten()
        found = {}
        # the n-th prompts of all images are one call, with the negative one before the first where lengths agree
        calls = [(torch.stack([image[n][0] for image in prompts]), n) for n in range(len(prompts[0]))]
        if scale == 1.0:
            found["negative"] = torch.zeros_like(x)
        elif calls[0][0].shape == negatives.shape:
            found[0], found["negative"] = self._apply(x, sigma, [negatives, calls[0][0]], [1, 0])[::-1]
            calls = calls[1:]
        else:
            found["negative"] = self._apply(x, sigma, [negatives], [1])[0]
        for tokens, number in calls:
            found[number] = self._apply(x, sigma, [tokens], [0])[0]
        numbers = range(len(prompts[0]))
        positives = torch.stack([found[n][image] for image in range(len(x)) for n in numbers])
        guided = _combined(positives, found["negative"], prompts, scale)
        return guided if not self.timesteps else (x - guided) / sigma.view(-1, 1, 1, 1)

    def _apply(self, x, sigma, tokens, kinds):
        patcher = self.p.sd_model.forge_objects.unet
        x, sigma = torch.cat([x] * len(kinds)), torch.cat([sigma] * len(kinds))
        options = {"cond_or_uncond": kinds, "cond_mark": torch.tensor(kinds).repeat_interleave(len(x) // len(kinds))}
        c = {"c_crossattn": torch.cat(tokens), "transformer_options": options}
        if patcher.controlnet_linked_list is not None:
            c["control"] = patcher.controlnet_linked_list.get_control(x, sigma, dict(c), len(kinds))
        wrapper = patcher.model_options.get("model_function_wrapper")
        apply = patcher.model.apply_model
        found = apply(x, sigma, **c) if wrapper is None else wrapper(apply, {"input": x, "timestep": sigma, "c": c})
        return found.chunk(len(kinds))


class Drawing:
    """One picture, or several at once: what the hosts call ``p``."""

    def __init__(self, model, forge, refiner=None, refiner_step=0):
        self.forge, self.refiner_step = forge, refiner_step
        self.sd_model, self.refiner = _host_model(model), None if refiner is None else _host_model(refiner)
        self.stopped_by = Interrupted()
        self.sampler = None

    def sample(
        self, function, x, positive, negative, before=(), steps=12, cfg=7.0, stop_at=None, skip_early=0, **given
    ):
        """Draw one pass; ``before`` are called as the hosts call scripts before every sampling, twice as Forge does."""
        network, timesteps = self.sd_model.network, function is ddim
        denoiser = Denoiser(self, timesteps)
        denoiser.total_steps, denoiser.stop_at, denoiser.skip_early = steps, stop_at, skip_early
        self.sampler = SimpleNamespace(func=function, model_wrap_cfg=denoiser)
        if timesteps:
            given["timesteps"] = torch.arange(0, 1000, 1000 // (steps + 1))[: steps + 1] + 1
            x = x * alphas(network)[given["timesteps"][-1]].sqrt() * 1.0
        else:
            sigmas = given.setdefault("sigmas", schedule(network, steps))
            x = network.schedule.noise_scaling(sigmas[0], x, torch.zeros_like(x), True)
        for script in [*before] * 2:
            script(self)
        extra = {"cond": positive, "uncond": negative, "cond_scale": cfg}
        with torch.no_grad():
            found = self.sampler.func(denoiser, x, extra_args=extra, disable=True, **given)
        return network.latents.process_out(found)


def schedule(network, steps):
    import comfy.samplers

    return comfy.samplers.calculate_sigmas(network.schedule, "normal", steps)


def ddim(model, x, timesteps, extra_args=None, callback=None, disable=None, eta=0.0):
    """Sample with DDIM, which asks the model with timesteps for noise."""
    table = model.inner_model.inner_model.alphas_cumprod
    for place in range(len(timesteps) - 1, 0, -1):
        here, after = table[timesteps[place]], table[timesteps[place - 1]]
        noise = model(x, timesteps[place] * x.new_ones(len(x)), **extra_args)
        x = (x - (1 - here).sqrt() * noise) * (after / here).sqrt() + (1 - after).sqrt() * noise
    return x


def alphas(network):
    return 1.0 / (network.schedule.sigmas**2 + 1.0)


def always(conditioning):
    """Return a conditioning of ComfyUI as one prompt that never changes, for one image."""
    return [Composed([Part(1000, conditioning[0][0][0])], 1.0)]


def prompts(*images):
    return SimpleNamespace(batch=list(images))


def _host_model(model):
    network = Network(model)
    made = SimpleNamespace(network=network, alphas_cumprod=alphas(network), model=SimpleNamespace())
    made.model.diffusion_model = network.unet
    return made


def forge_model(made):
    made.forge_objects = SimpleNamespace(unet=Patcher(made.network))
    return made


def _now(schedules, step):
    return next((part.cond for part in schedules if step <= part.end_at_step), schedules[0].cond)


def _combined(positives, negatives, given, scale):
    guided, row = negatives.clone(), 0
    for image, several in enumerate(given):
        for _, weight in several:
            guided[image] += (positives[row] - negatives[image]) * (weight * scale)
            row += 1
    return guided
