"""Draw ComfyUI's most used templates with our nodes and write what those say into docs/models.md.

``python tools/update_templates.py`` takes some minutes: it starts a server and draws each of the templates four times.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from comfy_host import template_runs, templates  # noqa: E402
from comfy_host.in_process import bootstrap  # noqa: E402
from comfy_host.pack import load_pack  # noqa: E402
from comfy_host.random_files.loaders import network  # noqa: E402
from comfy_host.random_files.table import NETWORKS, found  # noqa: E402
from update_models import PAGE, replaced  # noqa: E402

COUNT = 40
_HEADINGS = ("Models", "Share of use", "Templates", "Apply ToMe", "Fuse QKV", "Reuse Steps")


@dataclass
class Row:
    """What was found for the templates of one family; ``said`` are answers by the node's type."""

    usage: int = 0
    templates: int = 0
    said: dict[str, list[str]] = field(default_factory=dict)

    def add(self, node: str, answer: str) -> None:
        self.said.setdefault(node, []).append(answer)

    def cell(self, node: str) -> str:
        """Return the different answers, each with how often it was given if there are several."""
        answers = self.said.get(node, [])
        different = dict.fromkeys(answers)
        if len(different) < 2:
            return "".join(different)
        return "; ".join(f"{answer} ({answers.count(answer)} of {len(answers)})" for answer in different)


def family_of(template: templates.Template) -> str:
    """Return the name of the family of a template's diffusion model."""
    from paceline.optimizers.families.known import find_family

    names = [name for name in templates.diffusion_models(template) if "sam3" not in name]
    name, settings = found(names[0], NETWORKS)
    family = find_family(network(name, **settings).model.diffusion_model)
    assert family is not None, names
    return (family.tokens and family.tokens.models) or family.name


def answer(report: template_runs.Report) -> str:
    """Return what a node's report says of a family, without what depends on the size of the networks."""
    if report.state == "active":
        blocks, of = report.counts.get("blocks"), report.counts.get("all_blocks")
        return "active" if blocks is None else "all blocks" if blocks == of else f"{blocks:g} of {of:g} blocks"
    reason = report.details[0] if report.headline.startswith(("not active", "nothing was")) else report.headline
    reason = re.sub(r"^\d+ x fallback: |\d+ tokens instead of \d+ | \([\w.]+\)$|^not possible here: ", "", reason)
    return f"no: {reason.removeprefix('(').removesuffix(')')}"


def look(host: template_runs.Host, template: templates.Template, row: Row) -> None:
    """Draw a template with what is advised for it, and with Fuse QKV."""
    from paceline.workbench.comfyui.tuning.command import tune
    from paceline.workbench.comfyui.tuning.server import Server

    prompt = host.prompt_of(template)
    with contextlib.redirect_stdout(io.StringIO()):
        faster = tune(Server(host.server.base_url), prompt, "fast", 0.0)
    said: set[tuple[str, str]] = set()
    for made in (faster, host.with_node(prompt, "PacelineFuseQKV")):
        for report in template_runs.reports(host.draw(made), made).values():
            said.add((report.node, answer(report)))
    for node, one in sorted(said):
        row.add(node, one)
    if "PacelineReuseSteps" not in {node for node, _ in said}:
        row.add("PacelineReuseSteps", "not advised: too few steps")


def table(rows: dict[str, Row], whole: int) -> Iterable[str]:
    """Yield the lines of the table, the most used family first; ``whole`` is the use of all templates."""
    yield "| " + " | ".join(_HEADINGS) + " |"
    yield "|---" * len(_HEADINGS) + "|"
    for name, row in sorted(rows.items(), key=lambda item: -item[1].usage):
        cells = (row.cell(node) for node in ("PacelineApplyToMe", "PacelineFuseQKV", "PacelineReuseSteps"))
        yield "| " + " | ".join([name, f"{row.usage / whole:.1%}", str(row.templates), *cells]) + " |"


def main() -> None:
    bootstrap()
    load_pack()
    rows: dict[str, Row] = {}
    chosen = templates.most_used(COUNT)
    with template_runs.host() as host:
        for template in chosen:
            row = rows.setdefault(family_of(template), Row())
            row.usage += template.usage
            row.templates += 1
            look(host, template, row)
            print(template.name, flush=True)
    whole = sum(template.usage for template in templates.drawing())
    share = sum(template.usage for template in chosen) / whole
    source = f"comfyui-workflow-templates-json {version('comfyui-workflow-templates-json')}"
    said = f"The {COUNT} templates are {share:.0%} of the use that {source} counts for open-weight pictures and videos."
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(text, "templates", Path(__file__).name, "\n".join([said, "", *table(rows, whole)])))


if __name__ == "__main__":
    main()
