"""Paceline in Stable Diffusion WebUI and Forge: the accordion, the text in pictures, reports and axes.

WebUI loads this file by its path. The checkout becomes the package ``paceline``, without being importable itself: names
like ``nodes`` and ``server`` belong to others.
"""

from __future__ import annotations

import html
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gradio as gr
from modules import script_callbacks, scripts, shared
from modules.ui_components import InputAccordion

if "paceline" not in sys.modules and not TYPE_CHECKING:
    package = ModuleType("paceline")  # its own __init__ is for ComfyUI and for diffusers
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules["paceline"] = package

from paceline.core.errors import PacelineError
from paceline.core.technique import ATTENTION
from paceline.optimizers.attention.policy import TOOLTIP as BACKEND_TOOLTIP
from paceline.optimizers.hosts.webui import Said, accelerate
from paceline.optimizers.hosts.webui.choices import AS_ABOVE, BACKENDS, CHOICES, CUSTOM, OFF, Single, settings_of
from paceline.optimizers.step_reuse.settings import TOOLTIPS as REUSE_TOOLTIPS
from paceline.optimizers.token_merging import METHODS
from paceline.optimizers.token_merging import tooltips as tome_tooltips

LOG = logging.getLogger("paceline")

ARGUMENTS = ("on", "choice", "hires", "method", "ratio", "max_downsample", "budget", "backend")
"""What requests to the API give by position: the list only grows, at its end."""

DEFAULTS = (False, "Hardly visible", AS_ABOVE, *Single().__dict__.values())

FIELDS = {name: f"Paceline {name.replace('_', ' ')}" for name in ARGUMENTS[2:]}
"""What the text in a picture calls them; the choice is called ``Paceline``."""

NOT_HERE = (
    "Fuse QKV, Quantize int8 and Compile UNet are not offered here: they need weights that stay as they are, and WebUI "
    "writes LoRAs into weights, restores and moves them between pictures. Precision is set in WebUI's own settings."
)

LAST: list[dict[str, Any]] = []
"""What the techniques said of the last picture, or of the last few that were drawn at once: pass by pass."""


class PacelineScript(scripts.Script):
    """The accordion *Paceline* of both tabs."""

    def title(self) -> str:
        return "Paceline"

    def show(self, is_img2img: bool) -> object:
        _add_axes()  # here, because every script is asked for this before any is asked for its page
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list[Any]:
        single = Single()
        with InputAccordion(False, label="Paceline", elem_id=self.elem_id("on")) as on:
            choice = gr.Radio(
                list(CHOICES),
                value=DEFAULTS[1],
                label="How much may the picture change?",
                info="Same picture: only rounding may differ. Hardly visible: a little fine detail for speed. Fastest: "
                "detail may change where you can see it side by side. Custom: the values below.",
                elem_id=self.elem_id("choice"),
            )
            hires = gr.Dropdown(
                [AS_ABOVE, *CHOICES],
                value=AS_ABOVE,
                label="In the hires pass",
                visible=not is_img2img,
                elem_id=self.elem_id("hires"),
            )
            with gr.Accordion("Single techniques, for Custom", open=False, elem_id=self.elem_id("more")):
                method = gr.Dropdown(
                    list(METHODS), value=single.method, label="Apply ToMe: method", info=tome_tooltips()["method"]
                )
                ratio = gr.Slider(
                    0.0, 1.0, single.ratio, step=0.01, label="Apply ToMe: ratio", info=tome_tooltips()["ratio"]
                )
                max_downsample = gr.Dropdown(
                    ["auto", "1", "2", "4", "8"],
                    value=single.max_downsample,
                    label="Apply ToMe: max downsample",
                    info=tome_tooltips()["max_downsample"],
                )
                budget = gr.Slider(
                    0.0, 1.0, single.budget, step=0.01, label="Reuse Steps: budget", info=REUSE_TOOLTIPS["budget"]
                )
                backend = gr.Dropdown(
                    list(BACKENDS), value=single.backend, label="Set Attention Processor: backend", info=BACKEND_TOOLTIP
                )
                gr.HTML(f'<span style="color: var(--block-info-text-color)">{NOT_HERE}</span>')
            report = gr.Button("Full report of the last picture", elem_id=self.elem_id("report"))
            report.click(_page_of_report, outputs=[gr.HTML(elem_id=self.elem_id("reported"))])
        inputs = [choice, hires, method, ratio, max_downsample, budget, backend]
        pasted = dict(zip(ARGUMENTS[2:], inputs[1:], strict=True))
        self.infotext_fields = [(on, lambda text: "Paceline" in text), (choice, "Paceline")]
        self.infotext_fields += [(pasted[name], field) for name, field in FIELDS.items() if name != "hires"]
        self.infotext_fields += [(hires, lambda text: text.get(FIELDS["hires"], AS_ABOVE))]
        self.paste_field_names = ["Paceline", *FIELDS.values()]
        return [on, *inputs]

    def process(self, p: Any, *args: Any) -> None:
        """Take out what the cell of a grid before this one has written: cells share their texts."""
        for field in ("Paceline", *FIELDS.values()):
            p.extra_generation_params.pop(field, None)

    def process_batch(self, p: Any, *args: Any, **given: Any) -> None:
        """Begin a report for the pictures that are drawn at once."""
        if _asked(p, args)["on"]:
            LAST.clear()

    def process_before_every_sampling(self, p: Any, *args: Any, **given: Any) -> None:
        """Let the techniques work in the sampling that begins; the host calls it for each pass, in Forge twice."""
        asked = _asked(p, args)
        if not asked["on"] or asked["choice"] == OFF and asked["hires"] in (AS_ABOVE, OFF):
            return
        try:
            hires = getattr(p, "is_hr_pass", False) and asked["hires"] != AS_ABOVE
            single = Single(**{name: asked[name] for name in ARGUMENTS[3:]})
            chosen = settings_of(asked["hires"] if hires else asked["choice"], single)
        except PacelineError as error:
            p.comment(f"Paceline: {error} Nothing was changed.")
            LOG.warning("%s", error)
            return
        _write_down(p, asked)
        if chosen:
            before = "the hires pass, " if getattr(p, "is_hr_pass", False) else ""
            accelerate(p, chosen, lambda said: _tell(p, said, before), _refusals())


def _asked(p: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Return what was asked for, by name: on the page, by a request, or by an axis of a grid."""
    asked = dict(zip(ARGUMENTS, (*args, *DEFAULTS[len(args) :]), strict=False))
    given = {name: getattr(p, f"paceline_{name}") for name in ARGUMENTS if hasattr(p, f"paceline_{name}")}
    if given:
        single = "choice" not in given and not given.keys().isdisjoint(ARGUMENTS[3:])
        asked |= {"on": True} | ({"choice": CUSTOM} if single else {})
    return asked | given


def _write_down(p: Any, asked: dict[str, Any]) -> None:
    """Put what was asked for into the text of the picture, as far as it is not the default or has no effect."""
    choices, text = (asked["choice"], asked["hires"]), p.extra_generation_params
    text["Paceline"] = asked["choice"]
    if asked["hires"] != AS_ABOVE:
        text[FIELDS["hires"]] = asked["hires"]
    if CUSTOM in choices:
        text |= {FIELDS[name]: asked[name] for name in ARGUMENTS[3:]}


def _tell(p: Any, said: Sequence[Said], before: str) -> None:
    LAST.extend({"title": one.title, "pass": before.rstrip(", ") or "the first pass", **_report(one)} for one in said)
    for one in said:
        p.comment(f"Paceline, {before}{one.title}: {one.summary.headline}")
        LOG.info("%s%s: %s", before, one.title, "; ".join([one.summary.headline, *one.summary.lines]))


def _report(one: Said) -> dict[str, Any]:
    summary = one.summary
    details = list(summary.details)
    return {"state": summary.state, "headline": summary.headline, "counts": dict(summary.counts), "details": details}


def _page_of_report() -> str:
    """Return the last report as HTML."""
    if not LAST:
        return "No picture was drawn with Paceline yet."
    parts = []
    for one in LAST:
        lines = [f"{one['title']}, {one['pass']}: {one['headline']}", *one["details"]]
        first, *others = map(html.escape, lines)
        parts.append(f"<p><b>{first}</b></p><ul>{''.join(f'<li>{line}</li>' for line in others)}</ul>")
    return "".join(parts)


def _refusals() -> dict[str, str]:
    """Return why a technique must be left out, as far as the host's own settings tell."""
    if getattr(shared, "loaded_hypernetworks", None):
        return {ATTENTION: "a hypernetwork changes keys and values inside of the host's attention"}
    if getattr(shared.opts, "upcast_attn", False):
        return {ATTENTION: "the setting Upcast cross attention layer to float32 is on"}
    return {}


def _add_axes() -> None:
    axes = {
        "choice": (str, lambda: list(CHOICES)),
        "method": (str, lambda: list(METHODS)),
        "ratio": (float, None),
        "budget": (float, None),
        "backend": (str, lambda: list(BACKENDS)),
    }
    for data in scripts.scripts_data:
        if Path(data.path).name == "xyz_grid.py":
            grid = data.module
            known = {option.label for option in grid.axis_options}
            for name, (kind, choices) in axes.items():
                label, apply = f"[Paceline] {name}", grid.apply_field(f"paceline_{name}")
                if label not in known:
                    grid.axis_options.append(grid.AxisOption(label, kind, apply, choices=choices))


def _add_route(_: object, app: Any) -> None:
    """Answer ``GET /paceline/report`` with what the techniques said of the last picture."""
    app.add_api_route("/paceline/report", lambda: LAST, methods=["GET"])


script_callbacks.on_app_started(_add_route)
