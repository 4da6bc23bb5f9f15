"""For tests: an extension that draws each picture again, as detailers do, that fails, stops, and looks around."""

from copy import copy

import gradio as gr
import torch
from modules import processing, scripts, shared


class TroubleScript(scripts.Script):
    """Its arguments: draw again; the step in which to fail, and to stop; look for what Paceline has put in place."""

    def title(self):
        return "Trouble"

    def show(self, is_img2img):
        return scripts.AlwaysVisible

    def ui(self, is_img2img):
        return [
            gr.Checkbox(False, label="Trouble: draw again"),
            gr.Number(-1, label="Trouble: step to fail in"),
            gr.Number(-1, label="Trouble: step to stop in"),
            gr.Checkbox(False, label="Trouble: look around"),
        ]

    def process(self, p, *args):
        torch.manual_seed(0)  # the hosts' encoders draw numbers, and nobody gives them a seed

    def process_before_every_sampling(self, p, again, fail_in, stop_in, look, **given):
        sampler = p.sampler
        after_step = type(sampler).callback_state.__get__(sampler)

        def callback(state):
            if state["i"] == fail_in:
                raise RuntimeError("the step that fails")
            if state["i"] == stop_in:
                shared.state.interrupt()
            if look:
                p.extra_generation_params["Trouble"] = "+".join(sorted(ours(p))) or "nothing"
            return after_step(state)

        sampler.callback_state = callback

    def postprocess_image(self, p, pp, again, *others):
        if not again or hasattr(p, "trouble_drawn"):
            return
        more = processing.StableDiffusionProcessingTxt2Img(
            sd_model=p.sd_model,
            prompt=p.prompt,
            negative_prompt=p.negative_prompt,
            seed=p.seeds[0] + 1,
            subseed=0,
            sampler_name=p.sampler_name,
            scheduler=p.scheduler,
            steps=p.steps - 2,
            cfg_scale=p.cfg_scale,
            width=p.width,
            height=p.height,
            do_not_save_samples=True,
            do_not_save_grid=True,
        )
        more.is_api = True  # else the host takes steps and seed from the page
        more.scripts, more.script_args = copy(p.scripts), tuple(p.script_args)
        more.trouble_drawn = True
        pp.image = processing.process_images(more).images[0]


def ours(p):
    """Return the names of attributes of the sampler, the denoiser and the networks that are Paceline's."""
    denoiser, model = p.sampler.model_wrap_cfg, p.sd_model
    objects = [p.sampler, denoiser, denoiser.inner_model]
    if hasattr(model, "forge_objects"):
        objects += model.forge_objects.unet.model.modules()
    else:
        objects += model.model.modules()
    for thing in objects:
        for name, value in vars(thing).items():
            told = (getattr(value, "__module__", None), type(value).__module__)
            if any(str(one).startswith("paceline.") for one in told):
                yield name
