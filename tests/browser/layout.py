"""Where the nodes of a graph lie in the page."""

from __future__ import annotations

from browser.page import Page


def overlapping(page: Page) -> list[str]:
    """Return which nodes lie over each other."""
    return page.script(
        """
        const boxes = app.graph.nodes.map((node) => [node.type, node.pos[0], node.pos[1] - 30, ...node.size]);
        return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => a[1] < b[1] + b[3] && b[1] < a[1] + a[3]
          && a[2] < b[2] + b[4] + 30 && b[2] < a[2] + a[4] + 30).map((b) => `${a[0]} and ${b[0]}`));
        """
    )


def outside(page: Page) -> list[str]:
    """Return which of our nodes are not whole in the view."""
    return page.script(
        """
        const { ds, canvas } = app.canvas, { width, height } = canvas.getBoundingClientRect();
        return app.graph.nodes.filter(({ type }) => type.startsWith("Paceline")).filter(({ pos, size }) =>
          [0, 1].some((axis) => (pos[axis] + ds.offset[axis]) * ds.scale < 0
            || (pos[axis] + size[axis] + ds.offset[axis]) * ds.scale > [width, height][axis])).map(({ type }) => type);
        """
    )
