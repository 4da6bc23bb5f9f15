"""Draw ComfyUI's most used templates with our nodes and write what those say into docs/models.md.

``python tools/update_templates.py`` takes some minutes: it starts a server and draws each of the templates four times.
"""

from __future__ import annotations

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
from comfy_host.random_files.table import NETWORKS  # noqa: E402
from comfy_host.transformers import ALL  # noqa: E402
from update_models import PAGE, replaced  # noqa: E402

COUNT = 80
_HEADINGS = ("Models", "Share of use", "Templates drawn", "Apply ToMe", "Fuse QKV", "Reuse Steps")


@dataclass
class Row:
    """What was found for the templates of one family.

    ``said`` are answers by the node's type; ``missing``: why templates of it are not drawn.
    """

    usage: int = 0
    drawn: int = 0
    missing: list[str] = field(default_factory=list)
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
    """Return the name of the family of a template's diffusion model; of others, the template's own words."""
    from paceline.optimizers.families.known import families

    for file in templates.diffusion_models(template):
        name = next((name for pattern, (name, _) in NETWORKS if re.search(pattern, file, re.I)), "")
        if "sam3" in file or not name:
            continue
        wanted = ALL[name].family if name in ALL else "SD 1.x, SD 2.x, SDXL, SVD"
        family = next(family for family in families() if family.name == wanted)
        return (family.tokens and family.tokens.models) or family.name
    return template.models[0]


def answer(report: template_runs.Report) -> str:
    """Return what a node's report says of a family, without what depends on the size of the networks."""
    if report.state == "active":
        blocks, of = report.counts.get("blocks"), report.counts.get("all_blocks")
        return "active" if blocks is None else "all blocks" if blocks == of else f"{blocks:g} of {of:g} blocks"
    reason = report.details[0] if report.headline.startswith(("not active", "nothing was")) else report.headline
    reason = re.sub(r"^\d+ x fallback: |\d+ tokens instead of \d+ | \([\w.]+\)$|^not possible here: ", "", reason)
    return f"no: {reason[1:-1] if reason.startswith('(') and reason.endswith(')') else reason}"


def look(host: template_runs.Host, template: templates.Template, row: Row) -> None:
    """Draw a template with what can be inserted into it, and with Fuse QKV."""
    prompt = host.prompt_of(template)
    said: set[tuple[str, str]] = set()
    for made in (host.faster(prompt), host.with_node(prompt, "PacelineFuseQKV")):
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
        cells = [row.cell(node) for node in ("PacelineApplyToMe", "PacelineFuseQKV", "PacelineReuseSteps")]
        if not row.drawn:
            cells[0] = f"not drawn: {'; '.join(dict.fromkeys(row.missing))}"
        count = f"{row.drawn} of {row.drawn + len(row.missing)}" if row.missing else str(row.drawn)
        yield "| " + " | ".join([name, f"{row.usage / whole:.1%}", count, *cells]) + " |"


def main() -> None:
    bootstrap()
    load_pack()
    import comfyui_version

    rows: dict[str, Row] = {}
    chosen = templates.most_used(COUNT)
    with template_runs.host() as host:
        for template in chosen:
            row = rows.setdefault(family_of(template), Row())
            row.usage += template.usage
            if why_not := host.why_not(template):
                row.missing.append(why_not)
                continue
            row.drawn += 1
            look(host, template, row)
            print(template.name, flush=True)
    whole = sum(template.usage for template in templates.drawing())
    share = sum(template.usage for template in chosen) / whole
    source = f"comfyui-workflow-templates-json {version('comfyui-workflow-templates-json')}"
    said = (
        f"The {COUNT} templates are {share:.0%} of the use that {source} counts for open-weight pictures and videos. "
        f"They were drawn by ComfyUI {comfyui_version.__version__}; the others of *2 of 3* need what it or these tests "
        "do not have."
    )
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(text, "templates", Path(__file__).name, "\n".join([said, "", *table(rows, whole)])))


if __name__ == "__main__":
    main()
