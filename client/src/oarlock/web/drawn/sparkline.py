"""A curve as small as a word."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.explain.curve import thinned
from oarlock.report.markup import Html, element
from oarlock.report.scale import Scale
from oarlock.report.words import figure

WIDTH, HEIGHT, MOST = 96, 22, 32


def sparkline(values: Sequence[float], name: str) -> Html | None:
    """None where there are not two values. Outliers at the start do not flatten the rest: the top is the 95th percentile."""
    shown = thinned(values, MOST)
    if len(shown) < 2:
        return None
    top = sorted(shown)[int(0.95 * (len(shown) - 1))]
    x = Scale(0, len(shown) - 1, 1, WIDTH - 1)
    y = Scale(min(shown), top, HEIGHT - 2, 2)
    path = "".join(f"{'L' if place else 'M'}{x(place):.0f} {y(value):.1f}" for place, value in enumerate(shown))
    return element(
        "svg",
        element("path", d=path, class_="line loss"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="sparkline",
        role="img",
        aria_label=f"{name} from {figure(values[0])} to {figure(values[-1])}",
    )
