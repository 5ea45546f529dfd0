"""The little of SVG that reports are drawn with: they open in any browser, and no library has to be carried for them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DARK, LIGHT, INK = "#2f6f9f", "#a9cbe2", "#1b1f24"


def document(width: float, height: float, elements: Iterable[str]) -> str:
    """A picture of so many pixels on white."""
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *elements, "</svg>\n"])


def text(left: float, words: str, *, top: float = 0.0, weight: str = "normal", anchor: str = "start") -> str:
    """A line of words whose foot stands at `top`."""
    place = f'x="{left:.0f}" y="{top:.0f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}">{escape(words)}</text>'


def line(points: Sequence[tuple[float, float]], colour: str, *, width: float = 1.5) -> str:
    """A line through points."""
    return f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def area(points: Sequence[tuple[float, float]], colour: str) -> str:
    """A filled area within points."""
    return f'<polygon points="{_points(points)}" fill="{colour}"/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
