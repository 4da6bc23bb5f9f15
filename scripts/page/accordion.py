"""The accordion *Paceline* of both tabs, its text in pictures, its axes of a grid, and its reports.

The reports about the last picture are shown on the page, and answered at ``GET /paceline/report``.
"""

from __future__ import annotations

import html
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from modules import scripts, shared
from modules.ui_components import InputAccordion

from ...optimizers.attention.attention_policy import AUTO
from ...optimizers.core.activity import Summary
from ...optimizers.core.choices import CHOICES as BY_NAME
from ...optimizers.core.errors import PacelineError, require_boolean
from ...optimizers.core.settings import Settings, setting
from ...optimizers.core.technique import ATTENTION
from ...optimizers.in_webui import TOOLTIPS, TechniqueReport, accelerate, keep_levels
from ...optimizers.in_webui.webui_choices import AS_ABOVE, BACKENDS, CHOICES, CUSTOM, OFF, PRESETS, Single, settings_of
from ...optimizers.in_webui.webui_run import SettingsByKind
from ...optimizers.step_reuse.reuse_settings import StepReuseSettings
from ...optimizers.token_merging.tome_settings import METHODS, TokenMergingSettings

REPORT = "/paceline/report"

_MOST = 24
"""Reports that are kept."""


class TabReport:
    """Reports about the pictures of one ``p``, and of those that other extensions draw meanwhile, as face detailers do.

    Equal reports are counted, as ``times``; of those of further kinds it is said how many there were.
    """

    def __init__(self, p: Any = None) -> None:
        self.begun = time.monotonic()
        self.entries: list[dict[str, Any]] = []
        self.more = 0
        self._p, self._job = id(p), _job()

    def goes_on(self) -> bool:
        """Return whether its pictures are still being drawn."""
        return self._job is not None and self._job == _job()

    def ended(self, p: Any) -> None:
        """Note that all pictures of ``p`` are drawn."""
        if id(p) == self._p:
            self._job = None

    def add(self, p: Any, said: Sequence[TechniqueReport], hires: bool) -> None:
        """Add the reports of one pass."""
        drawn = "the hires pass" if hires else "the first pass" if id(p) == self._p else "a further picture"
        for one in said:
            summary = one.summary
            entry: dict[str, Any] = {"title": one.title, "pass": drawn, "state": summary.state}
            entry |= {"headline": summary.headline, "counts": dict(summary.counts), "details": list(summary.details)}
            known = next((other for other in self.entries if other | entry == other), None)
            if known is not None:
                known["times"] += 1
            elif len(self.entries) < _MOST:
                self.entries.append({**entry, "times": 1})
            else:
                self.more += 1

    def as_html(self) -> str:
        if not self.entries:
            return "No picture was drawn with Paceline yet."
        parts = []
        for entry in self.entries:
            times = f" ({entry['times']} times)" if entry["times"] > 1 else ""
            lines = [f"{entry['title']}, {entry['pass']}{times}: {entry['headline']}", *entry["details"]]
            first, *others = map(html.escape, lines)
            parts.append(f"<p><b>{first}</b></p><ul>{''.join(f'<li>{line}</li>' for line in others)}</ul>")
        more = [f"<p>and {self.more} more</p>"] if self.more else []
        return "".join([*parts, *more])


def _job() -> object:
    """Return the mark that tells one click from the next; None where the program does not say."""
    return getattr(getattr(shared, "state", None), "time_start", None)


def last_report() -> TabReport:
    """Return the report of the tab that has drawn last: the program keeps one script for each tab."""
    runners = (scripts.scripts_txt2img, scripts.scripts_img2img)
    kept = [getattr(script, "report", None) for runner in runners for script in runner.alwayson_scripts]
    reports = [report for report in kept if isinstance(report, TabReport)]
    return max(reports, key=lambda report: report.begun, default=TabReport())


def add_route(_: object, app: Any) -> None:
    """Answer ``GET /paceline/report``."""
    app.add_api_route(REPORT, lambda: last_report().entries, methods=["GET"])


LOG = logging.getLogger("paceline")

ARGUMENTS = ("on", "choice", "hires", "method", "ratio", "max_downsample", "budget", "backend", "residual")
"""Arguments of requests to the API, by position: the list only grows, at its end."""

DEFAULTS = (False, BY_NAME["balanced"].label, AS_ABOVE, *Single().__dict__.values())

FIELDS = {name: f"Paceline {name.replace('_', ' ')}" for name in ARGUMENTS[2:]}
"""Their names in the text of a picture; there the choice is called ``Paceline``."""

_ATTENTION_OPTIONS = (
    *("xformers", "force_enable_xformers", "opt_sdp_attention", "opt_sdp_no_mem_attention", "opt_sub_quad_attention"),
    *("opt_split_attention", "opt_split_attention_v1", "opt_split_attention_invokeai", "disable_opt_split_attention"),
    *("attention_split", "attention_quad", "attention_pytorch"),
)
"""Start options of A1111's WebUI, and in the last line of Forge, with which a user chooses attention."""

NOT_HERE = (
    "Fuse QKV, Quantize int8 and Compile UNet are not offered here: they need weights that stay as they are, and WebUI "
    "writes LoRAs into weights, restores and moves them between pictures. Precision is set in WebUI's own settings."
)


class PacelineScript(scripts.Script):
    """The accordion of one tab, with the report of the pictures that were drawn in it last."""

    def __init__(self) -> None:
        super().__init__()
        self.report = TabReport()

    def title(self) -> str:
        return "Paceline"

    def show(self, is_img2img: bool) -> object:
        _add_axes()  # here, because every script is asked for this before any is asked for its page
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list[Any]:
        with InputAccordion(False, label="Paceline", elem_id=self.elem_id("on")) as on:
            choice = gr.Radio(
                list(CHOICES),
                value=DEFAULTS[1],
                label="How much may the picture change?",
                info=" ".join(f"{label}: {preset.sentence}" for label, preset in PRESETS.items())
                + " Custom: the values below.",
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
                *merging, residual = (
                    _control(TokenMergingSettings, name, label=f"Apply ToMe: {name.replace('_', ' ')}")
                    for name in ("method", "ratio", "max_downsample", "residual")
                )
                singles = [
                    *merging,
                    _control(StepReuseSettings, "budget", label="Reuse Steps: budget"),
                    gr.Dropdown(
                        list(BACKENDS),
                        value=Single.backend,
                        label="Set Attention Processor: backend",
                        info=TOOLTIPS["backend"],
                    ),
                    residual,
                ]
                gr.HTML(f'<span style="color: var(--block-info-text-color)">{NOT_HERE}</span>')
            report = gr.Button("Full report of the last picture", elem_id=self.elem_id("report"))
            report.click(lambda: last_report().as_html(), outputs=[gr.HTML(elem_id=self.elem_id("reported"))])
        inputs = [choice, hires, *singles]
        read = FIELDS | {"hires": lambda text: text.get(FIELDS["hires"], AS_ABOVE), "residual": _residual_of}
        self.infotext_fields = [(on, lambda text: "Paceline" in text), (choice, "Paceline")]
        self.infotext_fields += zip(inputs[1:], read.values(), strict=True)
        self.paste_field_names = ["Paceline", *FIELDS.values()]
        return [on, *inputs]

    def process(self, p: Any, *args: Any) -> None:
        """Begin a report, and remove the fields that an earlier cell of a grid wrote: cells share their texts."""
        # What another extension draws before the pictures of its caller are done belongs to these.
        if _asked(p, args)["on"] and not self.report.goes_on():
            self.report = TabReport(p)
        for field in ("Paceline", *FIELDS.values()):
            p.extra_generation_params.pop(field, None)

    def postprocess(self, p: Any, *args: Any) -> None:
        """Note that all pictures are drawn."""
        self.report.ended(p)

    def process_before_every_sampling(self, p: Any, *args: Any, **given: Any) -> None:
        """Switch the techniques on for the next sampling; the host calls this for each pass, Forge twice."""
        if (choose := getattr(p, "paceline_levels", None)) is not None:  # a control of the script that measures
            keep_levels(p, choose)
        asked = _asked(p, args)
        if not asked["on"] or asked["choice"] == OFF and asked["hires"] in (AS_ABOVE, OFF):
            return
        hires = bool(getattr(p, "is_hr_pass", False))
        try:
            single = Single(**{name: asked[name] for name in ARGUMENTS[3:]})
            require_boolean("on", asked["on"])
            if asked["hires"] != AS_ABOVE:
                settings_of(asked["hires"], single)  # in the first pass, too: nothing of it is written down
            chosen = settings_of(asked["hires" if hires and asked["hires"] != AS_ABOVE else "choice"], single)
        except PacelineError as error:
            refused = Summary("inactive", f"{error} Nothing was changed.")
            self.report.add(p, [TechniqueReport(self.title(), refused)], hires)
            p.comment(f"Paceline: {refused.headline}")
            LOG.warning("%s", error)
            return
        _write_down(p, asked)
        if chosen:
            accelerate(p, chosen, lambda said: self._tell(p, said, hires), _refusals(chosen))

    def _tell(self, p: Any, said: Sequence[TechniqueReport], hires: bool) -> None:
        self.report.add(p, said, hires)
        before = "the hires pass, " if hires else ""
        for one in said:
            p.comment(f"Paceline, {before}{one.title}: {one.text}")
            LOG.info("%s%s: %s", before, one.title, "; ".join([one.summary.headline, *one.summary.details]))


def _control(owner: type[Settings], name: str, label: str) -> Any:
    """Return the control of a setting, with the default, limits and choices of its field."""
    found = setting(owner, name)
    given = {"value": str(found.default), "label": label, "info": TOOLTIPS[name]}
    if "choices" in found.metadata:
        return gr.Dropdown([str(choice) for choice in found.metadata["choices"]], **given)
    return gr.Slider(
        found.metadata["minimum"], found.metadata["maximum"], step=0.01, **given | {"value": found.default}
    )


def _residual_of(text: Mapping[str, str]) -> str | None:
    """Return the value in the text of a picture; of a picture with *Custom* from before there was ``residual``, off."""
    return text.get(FIELDS["residual"], "off" if FIELDS["method"] in text else None)


def _asked(p: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments by name, as the page, a request or an axis of a grid gives them."""
    asked = dict(zip(ARGUMENTS, (*args, *DEFAULTS[len(args) :]), strict=False))
    given = {name: getattr(p, f"paceline_{name}") for name in ARGUMENTS if hasattr(p, f"paceline_{name}")}
    if given:
        single = "choice" not in given and not given.keys().isdisjoint(ARGUMENTS[3:])
        asked |= {"on": True} | ({"choice": CUSTOM} if single else {})
    return asked | given


def _write_down(p: Any, asked: dict[str, Any]) -> None:
    """Write the choice into the text of the picture, and the values that differ from the default and have an effect."""
    choices, text = (asked["choice"], asked["hires"]), p.extra_generation_params
    text["Paceline"] = asked["choice"]
    if asked["hires"] != AS_ABOVE:
        text[FIELDS["hires"]] = asked["hires"]
    if CUSTOM in choices:
        text |= {FIELDS[name]: asked[name] for name in ARGUMENTS[3:]}


def _refusals(chosen: SettingsByKind) -> dict[str, str]:
    """Return why a technique must be left out, as far as the host's own settings tell."""
    if getattr(shared, "loaded_hypernetworks", None):
        return {ATTENTION: "a hypernetwork changes keys and values inside of the host's attention"}
    if getattr(shared.opts, "upcast_attn", False):
        return {ATTENTION: "the setting Upcast cross attention layer to float32 is on"}
    users = _attention_of_the_user() if chosen.get(ATTENTION) == AUTO else ""
    return {ATTENTION: f"{users}, which auto leaves in place"} if users else {}


def _attention_of_the_user() -> str:
    """Return where the user has chosen the host's attention: a setting of A1111, a start option; "" for nowhere."""
    chosen = getattr(shared.opts, "cross_attention_optimization", "Automatic")
    if chosen != "Automatic":
        return f"the setting Cross attention optimization is {chosen}"
    option = next((name for name in _ATTENTION_OPTIONS if getattr(shared.cmd_opts, name, False)), "")
    return f"the host was started with --{option.replace('_', '-')}" if option else ""


def _add_axes() -> None:
    axes = {
        "choice": (str, lambda: list(CHOICES)),
        "method": (str, lambda: list(METHODS)),
        "ratio": (float, None),
        "budget": (float, None),
        "backend": (str, lambda: list(BACKENDS)),
        "residual": (str, lambda: list(setting(TokenMergingSettings, "residual").metadata["choices"])),
    }
    for data in scripts.scripts_data:
        if Path(data.path).name == "xyz_grid.py":
            grid = data.module
            known = {option.label for option in grid.axis_options}
            for name, (kind, choices) in axes.items():
                label, apply = f"[Paceline] {name}", grid.apply_field(f"paceline_{name}")
                if label not in known:
                    grid.axis_options.append(grid.AxisOption(label, kind, apply, choices=choices))
