"""The face for Stable Diffusion WebUI, loaded as WebUI loads it, with stand-ins for WebUI's modules and gradio."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host.paths import ROOT
from paceline.optimizers.core.activity import Summary
from paceline.optimizers.core.choices import CHOICES as BY_NAME
from paceline.optimizers.core.errors import InvalidSetting
from paceline.optimizers.core.technique import ATTENTION, STEP_REUSE
from paceline.optimizers.in_webui import TechniqueReport, webui_choices
from paceline.optimizers.in_webui.webui_choices import AS_ABOVE, CHOICES
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings

LANGUAGES = {"ar_AR": "ar", "es_ES": "es", "ja_JP": "ja", "th_TH": "th", "zh_CN": "zh"}


class Component:
    """A control of gradio: keeps what it was made with, and is a place for others."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self.args, self.given = args, given

    def __enter__(self) -> Component:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def click(self, *args: Any, **given: Any) -> None:
        self.clicked = args[0]


class Page:
    """What WebUI has after both files of ``scripts/`` were loaded; ``made`` are the controls of the accordion."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[Component] = []
        self.routes: dict[str, Any] = {}
        self.runners = [SimpleNamespace(alwayson_scripts=[], inputs=[]) for _ in range(2)]
        names = ("Radio", "Dropdown", "Accordion", "Slider", "Button", "HTML")
        self._put(patch, "gradio", **{name: self._make for name in names})
        script = type("Script", (), {"elem_id": lambda self, name: name})
        txt2img, img2img = self.runners
        of_scripts = {"Script": script, "AlwaysVisible": object(), "scripts_data": []}
        of_scripts |= {"scripts_txt2img": txt2img, "scripts_img2img": img2img}
        self._put(patch, "modules.scripts", **of_scripts)
        self._put(patch, "modules.script_callbacks", on_app_started=lambda callback: callback(None, self))
        self._put(patch, "modules.shared", opts=SimpleNamespace(), cmd_opts=SimpleNamespace(), device="cpu")
        self._put(patch, "modules.ui_components", InputAccordion=self._make)
        self._put(patch, "modules.infotext_utils", quote=str)
        self._put(patch, "modules.images")
        self._put(patch, "modules.processing")
        self.accordion, self.measure = (self._loaded(name) for name in ("paceline", "paceline_measure"))

    def _make(self, *args: Any, **given: Any) -> Component:
        self.made.append(Component(*args, **given))
        return self.made[-1]

    @staticmethod
    def _put(patch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
        module = ModuleType(name)
        vars(module).update(content)
        patch.setitem(sys.modules, name, module)
        above, _, below = name.rpartition(".")
        if above:
            parent = sys.modules.get(above) or ModuleType(above)
            patch.setitem(sys.modules, above, parent)
            setattr(parent, below, module)

    @staticmethod
    def _loaded(name: str) -> ModuleType:
        """Return a script as WebUI loads it, which puts it nowhere."""
        spec = importlib.util.spec_from_file_location(f"{name}.py", ROOT / "scripts" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def add_api_route(self, path: str, answer: Any, methods: list[str]) -> None:
        self.routes[path] = answer

    def tabs(self) -> list[Any]:
        """Give each tab its script anew."""
        for runner in self.runners:
            runner.alwayson_scripts = [self.accordion.PacelineScript()]
        return [runner.alwayson_scripts[0] for runner in self.runners]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Load the page beside an installed, empty package ``paceline``; afterwards all modules are those of before."""
    before = dict(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name in before:
            if name.partition(".")[0] == "paceline":
                patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "paceline", ModuleType("paceline"))
        yield Page(patch)
    for name in set(sys.modules) - set(before):
        if name.startswith(str(ROOT).replace(".", "_")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def controls(page: Page) -> list[Component]:
    page.tabs()[0].ui(is_img2img=False)
    return page.made


def test_an_installed_paceline_is_neither_hidden_nor_used(page: Page):
    installed = sys.modules["paceline"]
    assert [name for name in vars(installed) if not name.startswith("__")] == []
    assert not [name for name in sys.modules if name.startswith("paceline.")]
    for module, name in ((page.accordion, "PacelineScript"), (page.measure, "MeasureScript")):
        found = getattr(module, name)
        assert sys.modules[found.__module__].__file__.startswith(str(ROOT / "scripts" / "page"))


def test_the_report_is_that_of_the_tab_that_has_drawn_last(page: Page):
    answer = page.routes["/paceline/report"]
    first, second = page.tabs()
    assert answer() == []
    p = SimpleNamespace(comment=lambda text: None, extra_generation_params={})
    for tab, title in ((second, "Reuse Steps"), (first, "Apply ToMe")):
        tab.process(p, True)
        tab._tell(p, [TechniqueReport(title, Summary("active", "<b>", details=("line",)))], hires=True)
    assert [(one["title"], one["pass"]) for one in answer()] == [("Apply ToMe", "the hires pass")]
    assert "&lt;b&gt;" in first.report.as_html() and "<b>Apply" in first.report.as_html()
    first.process(p, False)
    assert answer() != []  # without Paceline there is nothing to say
    page.tabs()
    assert answer() == []  # nothing is kept but by the scripts


def test_the_report_tells_of_all_passes_of_a_click(page: Page, monkeypatch: pytest.MonkeyPatch):
    """A first pass and a hires pass, then two faces that another extension draws before the caller is done."""
    tab, _ = page.tabs()
    monkeypatch.setattr(sys.modules[type(tab.report).__module__], "_job", lambda: "one click")
    outer, face = (SimpleNamespace(comment=lambda text: None, extra_generation_params={}) for _ in range(2))
    said = [TechniqueReport("Reuse Steps", Summary("active", "9 of 20 evaluations computed"))]
    nothing = [TechniqueReport("Reuse Steps", Summary("inactive", "nothing was reused"))]
    tab.process(outer, True)
    tab._tell(outer, said, hires=False)
    tab._tell(outer, nothing, hires=True)
    for _ in range(2):
        tab.process(face, True)
        tab._tell(face, nothing, hires=False)
        tab.postprocess(face, None)
    told = [(one["pass"], one["headline"], one["times"]) for one in tab.report.entries]
    assert told == [
        ("the first pass", "9 of 20 evaluations computed", 1), ("the hires pass", "nothing was reused", 1),
        ("a further picture", "nothing was reused", 2),
    ]  # fmt: skip
    assert "a further picture (2 times): nothing was reused" in tab.report.as_html()
    tab.postprocess(outer, None)
    tab.process(face, True)  # the next click
    assert tab.report.entries == []


def test_what_a_strangers_picture_says_is_checked_before_anything_is_drawn(page: Page):
    script, said = page.tabs()[0], []
    p = SimpleNamespace(comment=said.append, extra_generation_params={}, sampler=None)
    for args in (
        (True, "<img src=x>"),
        (True, "Custom", AS_ABOVE, "merge", float("nan")),
        (True, "Custom", AS_ABOVE, "x"),
        (True, "Custom", AS_ABOVE, "merge", 2.0),
        (True, "Custom", AS_ABOVE, "merge", 0.5, "3"),
        (True, "Custom", AS_ABOVE, "merge", 0.5, "auto", "1"),
        (True, "Custom", AS_ABOVE, "merge", 0.5, "auto", 0.0, "x"),
        (True, "Custom", AS_ABOVE, "merge", 0.5, "auto", 0.0, "auto", 1),
        (True, ["Off"]),
        (True, "Fastest", "fastest"),
        ("false", "Fastest"),
    ):
        script.process(p, *args)
        script.process_before_every_sampling(p, *args)
        text = said.pop()
        assert text.endswith("Nothing was changed.") and said == [] and p.extra_generation_params == {}
        (entry,) = page.routes["/paceline/report"]()
        assert entry["state"] == "inactive" and text.endswith(entry["headline"])


def test_a_place_that_a_request_leaves_out_means_what_the_page_shows(page: Page, controls: list[Component]):
    """The hosts fill it from the page."""
    accordion = sys.modules[page.accordion.PacelineScript.__module__]
    shown = [control.given.get("value") for control in page.tabs()[0].ui(is_img2img=False)]
    assert shown[1:] == list(accordion.DEFAULTS[1:])


@pytest.mark.parametrize(
    ("opts", "options", "why"),
    [
        ({}, {}, None),
        ({"cross_attention_optimization": "Automatic"}, {"opt_split_attention": False}, None),
        ({"cross_attention_optimization": "Doggettx"}, {}, "the setting Cross attention optimization is Doggettx"),
        ({}, {"xformers": True}, "the host was started with --xformers"),
        ({}, {"attention_split": True}, "the host was started with --attention-split"),
    ],
)
def test_auto_leaves_the_attention_in_place_that_the_user_has_chosen(page: Page, monkeypatch, opts, options, why):
    shared, script = sys.modules["modules.shared"], page.tabs()[0]
    monkeypatch.setattr(shared, "opts", SimpleNamespace(**opts))
    monkeypatch.setattr(shared, "cmd_opts", SimpleNamespace(**options))

    def refusals(*args: object) -> dict[str, str]:
        p = SimpleNamespace(comment=print, extra_generation_params={}, sampler=SimpleNamespace(func=print))
        script.process_before_every_sampling(p, True, *args)
        return p.sampler.func.refusals

    assert refusals("Same picture") == ({} if why is None else {ATTENTION: f"{why}, which auto leaves in place"})
    assert refusals("Custom", AS_ABOVE, "merge", 0.0, "auto", 0.0, "vanilla", "off") == {}


def test_a_control_without_late_levels_is_drawn_in_as_many_steps(page: Page):
    tab, _ = page.tabs()
    tab.args_from, seen = 0, []
    p = SimpleNamespace(steps=8, seed=1, subseed=1, batch_size=1, styles=[], extra_generation_params={})
    p.scripts, p.script_args = page.runners[0], (True, "Fastest")
    session = sys.modules[page.measure.MeasureScript.__module__].Session(p, "Fastest")
    for side, steps in (("late_levels", 8), ("fewer_steps", 6)):
        drawn = session._copy(side, 0, 6)
        drawn.sampler = SimpleNamespace(func=lambda model, x, sigmas: seen.append(sigmas.tolist()))
        tab.process_before_every_sampling(drawn, *drawn.script_args)
        drawn.sampler.func(None, torch.zeros(1), sigmas=torch.arange(8.0, -1.0, -1.0))
        assert drawn.steps == steps and drawn.script_args[0] is False
        drawn.sampler.func(None, torch.zeros(1), sigmas=torch.tensor([1.0, 0.0]))  # too short a pass
    assert seen == [[8, 7, 6, 4, 2, 1, 0], [1, 0], [8, 7, 6, 5, 4, 3, 2, 1, 0], [1, 0]]


def test_choices_are_settings_of_techniques():
    single = webui_choices.Single(ratio=0.0, budget=0.1, backend=webui_choices.HOSTS_OWN)
    assert webui_choices.settings_of("Off", single) == {}
    assert webui_choices.settings_of("Same picture", single) == {ATTENTION: "auto"}
    assert webui_choices.settings_of("Custom", single) == {STEP_REUSE: StepReuseSettings(budget=0.1)}
    found = webui_choices.settings_of("Fastest", single)
    assert found == {ATTENTION: "auto", STEP_REUSE: StepReuseSettings(budget=0.15)}
    for wrong in ("fastest", None, 1):
        with pytest.raises(InvalidSetting, match="It must be one of: Off, Same picture, Hardly visible"):
            webui_choices.settings_of(wrong, single)


def test_the_text_of_a_picture_draws_it_again(page: Page, controls: list[Component]):
    """With *Custom*; one from before there was ``residual`` was drawn without, and other texts leave it as it is."""
    script, text = page.tabs()[0], {}
    inputs = script.ui(is_img2img=False)
    read = {control.given["label"]: field for control, field in script.infotext_fields if "label" in control.given}
    p = SimpleNamespace(comment=print, extra_generation_params=text, sampler=None)
    script.process_before_every_sampling(
        p, True, "Custom", AS_ABOVE, "merge", 0.0, "auto", 0.0, "the host's own", "auto"
    )
    assert text["Paceline residual"] == "auto" and len(inputs) == len(script.infotext_fields)
    residual = read["Apply ToMe: residual"]
    assert residual(text) == "auto" and residual({}) is residual({"Paceline": "Fastest"}) is None
    del text["Paceline residual"]
    assert residual(text) == "off"


def test_the_page_speaks_of_this_host(controls: list[Component]):
    said = " ".join(one.given.get("info", "") for one in controls)
    for word in ("ComfyUI", "this node", "lossless", "balanced"):
        assert word not in said
    assert "0.02 same picture" in said and "of comfy-kitchen" in said


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_label_and_choice_is_translated(code: str, controls: list[Component]):
    words = json.loads((ROOT / "localizations" / f"{code}.json").read_text())
    titles = [one.args[0] for one in controls if one.args and isinstance(one.args[0], str)]
    labels = {*titles, *(one.given["label"] for one in controls if "label" in one.given)}
    labels = {label for label in labels if "<" not in label} - {"Paceline"}
    assert set(words) == {*labels, *CHOICES, AS_ABOVE}
    assert not any(english == there for english, there in words.items())
    theirs = json.loads((ROOT / "locales" / LANGUAGES[code] / "main.json").read_text())["paceline"]
    assert {choice.label: words[choice.label] for choice in BY_NAME.values()} == {
        choice.label: theirs[f"choice_{name}"] for name, choice in BY_NAME.items()
    }
    nodes = json.loads((ROOT / "locales" / LANGUAGES[code] / "nodeDefs.json").read_text())
    assert words["Reuse Steps: budget"].startswith(nodes["PacelineReuseSteps"]["display_name"])
