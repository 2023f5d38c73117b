"""Picture: the flow of an app as SVG: its topics around it, and the ways between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from redrive.console.flow import Flow, Node

WIDTH: Final = 960
_BOX: Final = 250
_HIGH: Final = 58
_GAP: Final = 16
_MOST: Final = 12


class Box(NamedTuple):
    """A topic in the picture."""

    node: Node
    x: int
    y: int
    width: int = _BOX
    height: int = _HIGH


class Line(NamedTuple):
    """A way that records go; `busy` if some do now."""

    path: str
    kind: str
    busy: bool


class Picture(NamedTuple):
    """Where everything stands."""

    boxes: list[Box]
    lines: list[Line]
    app: Box | None
    height: int
    hidden: int
    """Topics that there was no room for: they are in the table."""


def picture(flow: Flow) -> Picture:
    """What is read on the left, the app in the middle, what is written on the right."""
    left = [*flow.of("source")[:_MOST], *flow.of("delay")[:_MOST]]
    right = [*flow.of("outbound")[:_MOST], *flow.of("dead")]
    rows = max(len(left), len(right), 1)
    height = rows * (_HIGH + _GAP) + _GAP
    boxes = [*_column(left, 0, height), *_column(right, WIDTH - _BOX, height)]
    middle = Box(Node("", "source"), (WIDTH - 150) // 2, (height - 90) // 2, 150, 90)
    lines = [_line(box, middle) for box in boxes]
    shown = len(left) + len(right)
    return Picture(boxes, lines, middle, height, len(flow.nodes) - shown)


def _column(nodes: Sequence[Node], x: int, height: int) -> list[Box]:
    used = len(nodes) * (_HIGH + _GAP) - _GAP
    top = (height - used) // 2
    return [Box(node, x, top + number * (_HIGH + _GAP)) for number, node in enumerate(nodes)]


def _line(box: Box, app: Box) -> Line:
    """From a topic to the app, or from the app to a topic, as a curve."""
    y, y_app = box.y + box.height // 2, app.y + app.height // 2
    if box.x < app.x:
        start, end = (box.x + box.width, y), (app.x, y_app)
        busy = bool(box.node.handled)
    else:
        start, end = (app.x + app.width, y_app), (box.x, y)
        busy = bool(box.node.written)
    half = (start[0] + end[0]) // 2
    path = f"M{start[0]},{start[1]} C{half},{start[1]} {half},{end[1]} {end[0]},{end[1]}"
    return Line(path, box.node.kind, busy)
