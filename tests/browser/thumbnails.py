"""Pictures for the cards of the templates: square as the cards are, with a title and the nodes that matter."""

from __future__ import annotations

import io
import textwrap
from typing import Any

from browser.page import Page
from made_examples import NOTE_TITLE
from PIL import Image, ImageDraw, ImageFont

SIDE, MARGIN, GAP = 640, 36, 20
BELOW_LABEL = 96
"""Where the title begins: the frontend lays a label over the card's upper left corner."""
LINE, LETTERS = 52, 26
MOST_NODES = 2
ROOM = 640
"""Pixels that the page has for a node between its own buttons."""
OPEN = "const node = app.graph.getNodeById(args[0]); app.canvas.openSubgraph(node.subgraph, node)"
"""Script that shows what is inside of a subgraph node."""
BACKGROUND, INK = "#17181b", "#f4f4f5"


def thumbnail(page: Page, workflow: dict[str, Any]) -> Image.Image:
    """Return the card of the open workflow, which is shown in Nodes 2.0."""
    notes = [node for node in workflow["nodes"] if node["type"] == "MarkdownNote"]
    note = next((node for node in notes if node.get("title") == NOTE_TITLE), notes[0])
    title = note["widgets_values"][0].splitlines()[0].removeprefix("## ")
    subgraphs = {graph["id"]: graph for graph in workflow.get("definitions", {}).get("subgraphs", ())}
    outer = next((node for node in workflow["nodes"] if node["type"] in subgraphs), None)
    nodes = workflow["nodes"] if outer is None else subgraphs[outer["type"]]["nodes"]
    if outer is not None:
        page.script(OPEN, outer["id"])
    ours = [node for node in nodes if node["type"].startswith("Paceline")]
    telling = [node for node in ours if node["type"] != "PacelineOptimizationReport"]
    measuring = [node for node in telling if node["type"] in ("PacelineCompareModels", "PacelineBenchmarkSweep")]
    chosen = measuring or telling or [node for node in workflow["nodes"] if node["type"] == "KSampler"]
    different = list({node["type"]: node for node in chosen}.values())
    made = card(title, [node_picture(page, node["id"]) for node in different[-MOST_NODES:]])
    page.script("app.canvas.setGraph(app.rootGraph)")
    return made


def node_picture(page: Page, node_id: int) -> Image.Image:
    """Return a node as it is seen, no larger than what stands in it."""
    page.script(
        """
        const node = app.canvas.graph.getNodeById(args[0]);
        node.setSize([Math.min(node.size[0], 340), 1]);
        """,
        node_id,
    )
    page.show_node(node_id, zoom=1.0)
    selector = f"[data-node-id='{node_id}']"
    if (height := page.element(selector).rect["height"]) > ROOM:
        page.show_node(node_id, zoom=ROOM / height)
    return Image.open(io.BytesIO(page.element(selector).screenshot_as_png)).convert("RGB")


def card(title: str, pictures: list[Image.Image]) -> Image.Image:
    """Return a title above pictures that are as large as they fit, in a row or one below the other."""
    made = Image.new("RGB", (SIDE, SIDE), BACKGROUND)
    font = ImageFont.load_default(44)
    lines = textwrap.wrap(title, LETTERS)
    for number, line in enumerate(lines):
        ImageDraw.Draw(made).text((MARGIN, BELOW_LABEL + number * LINE), line, INK, font)
    top = BELOW_LABEL + len(lines) * LINE + GAP
    room = SIDE - 2 * MARGIN, SIDE - top - MARGIN
    widths, heights = zip(*(picture.size for picture in pictures), strict=True)
    between = GAP * (len(pictures) - 1)
    row = min((room[0] - between) / sum(widths), room[1] / max(heights))
    column = min(room[0] / max(widths), (room[1] - between) / sum(heights))
    scale = max(row, column)
    x, y = MARGIN, top
    for picture in pictures:
        size = round(picture.width * scale), round(picture.height * scale)
        made.paste(picture.resize(size, Image.Resampling.LANCZOS), (x, y))
        x, y = (x + size[0] + GAP, y) if row >= column else (x, y + size[1] + GAP)
    return made
