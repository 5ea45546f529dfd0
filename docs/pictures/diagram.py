"""Diagrams of boxes on a grid and arrows between them, as SVG that is readable on a light and on a dark page.

Nothing is laid out by chance: the same diagram is the same file, so a check can compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT = 210, 96
BOX_WIDTH, BOX_HEIGHT = 170, 56
MARGIN = 20

STYLE = """<style>
  text { font: 12px sans-serif; fill: #1b1f24 }
  .title { font-weight: bold }
  .box { fill: #dcebf5; stroke: #2f6f9f }
  .strong { fill: #f7dcd0; stroke: #b5502b }
  .frame { fill: none; stroke: #8a939c; stroke-dasharray: 4 3 }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5; marker-end: url(#head) }
  .head { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .box { fill: #1f3a4d; stroke: #7db4d8 }
    .strong { fill: #4d2c1f; stroke: #e08a66 }
    .arrow { stroke: #adb5bd }
    .head { fill: #adb5bd }
  }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>"""


@dataclass(frozen=True, slots=True)
class Box:
    """A named thing at a place of the grid; `lines` say more below its name. `strong`: what the picture is about."""

    name: str
    column: float
    row: float
    lines: tuple[str, ...] = ()
    strong: bool = False

    @property
    def middle(self) -> tuple[float, float]:
        """Its middle, in pixels from the picture's left and top."""
        return MARGIN + self.column * CELL_WIDTH + BOX_WIDTH / 2, MARGIN + self.row * CELL_HEIGHT + BOX_HEIGHT / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the edge of one box to the edge of another, by their names."""

    start: str
    end: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """A dashed line around the cells from one corner to the other, both included."""

    words: str
    columns: tuple[float, float]
    rows: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Diagram:
    """What stands in one picture; `title` is read to those who do not see it."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    frames: tuple[Frame, ...] = ()


def svg(diagram: Diagram) -> str:
    """The picture as a file's text. Raises KeyError for an arrow that names no box."""
    boxes = {box.name: box for box in diagram.boxes}
    width = 2 * MARGIN + max(box.column for box in diagram.boxes) * CELL_WIDTH + BOX_WIDTH
    height = 2 * MARGIN + max(box.row for box in diagram.boxes) * CELL_HEIGHT + BOX_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{escape(diagram.title)}</title>",
            STYLE,
            *(_frame(frame) for frame in diagram.frames),
            *(_arrow(boxes[arrow.start], boxes[arrow.end], arrow.words) for arrow in diagram.arrows),
            *(_box(box) for box in diagram.boxes),
            "</svg>\n",
        ]
    )


def _box(box: Box) -> str:
    x, y = box.middle
    kind = "strong" if box.strong else "box"
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    words = (box.name, *box.lines)
    first = y + 4 - 7.5 * (len(words) - 1)
    rows = [_text(x, first + 15 * number, line, "title" if not number else "") for number, line in enumerate(words)]
    rect = f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
    return "\n".join([rect, *rows])


def _arrow(start: Box, end: Box, words: str) -> str:
    (x1, y1), (x2, y2) = start.middle, end.middle
    if abs(x2 - x1) >= BOX_WIDTH:  # side by side: from flank to flank
        towards = 1 if x2 > x1 else -1
        x1, x2 = x1 + towards * BOX_WIDTH / 2, x2 - towards * BOX_WIDTH / 2
        path = f"M{x1:g} {y1:g}H{(x1 + x2) / 2:g}V{y2:g}H{x2:g}" if y1 != y2 else f"M{x1:g} {y1:g}H{x2:g}"
        label = _text((x1 + x2) / 2, min(y1, y2) - 6, words)
    else:
        towards = 1 if y2 > y1 else -1
        y1, y2 = y1 + towards * BOX_HEIGHT / 2, y2 - towards * BOX_HEIGHT / 2
        path = f"M{x1:g} {y1:g}V{(y1 + y2) / 2:g}H{x2:g}V{y2:g}" if x1 != x2 else f"M{x1:g} {y1:g}V{y2:g}"
        label = _text((x1 + x2) / 2 + 6, (y1 + y2) / 2 + 4, words, anchor="start")
    return f'<path class="arrow" d="{path}"/>' + (f"\n{label}" if words else "")


def _frame(frame: Frame) -> str:
    left, top = MARGIN + frame.columns[0] * CELL_WIDTH - 12, MARGIN + frame.rows[0] * CELL_HEIGHT - 16
    width = (frame.columns[1] - frame.columns[0]) * CELL_WIDTH + BOX_WIDTH + 24
    height = (frame.rows[1] - frame.rows[0]) * CELL_HEIGHT + BOX_HEIGHT + 26
    rect = f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="8"/>'
    return f"{rect}\n{_text(left + 8, top + 12, frame.words, anchor='start')}"


def _text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "middle") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
