"""status.curve: the whole run in at most 64 points, for whoever looks when its pods are gone. Pure.

Which points stay depends on the steps alone: of each stretch of `stride` steps the first that was heard of, and the newest of
all. The stride is a power of two that doubles when there are too many stretches, so that two of them become one.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.wire import finite
from oarlock_api.progress import MAX_CURVE, CurvePoint


def with_figures(curve: Sequence[CurvePoint], figures: Figures) -> tuple[CurvePoint, ...]:
    """The curve with the newest figures. Steps that an attempt does again are drawn again."""
    if figures.step is None:
        return tuple(curve)
    new = CurvePoint(
        step=figures.step, loss=_short(figures.loss), seconds_per_step=_short(finite(figures.seconds_per_step))
    )
    return thinned([*(point for point in curve if point.step < new.step), new])


def thinned(points: Sequence[CurvePoint], *, most: int = MAX_CURVE) -> tuple[CurvePoint, ...]:
    """At most so many of these points, which come in the order of their steps."""
    first, newest, stride = points[0].step, points[-1], 1
    while newest.step // stride - first // stride >= most - 1:
        stride *= 2
    kept: dict[int, CurvePoint] = {}
    for point in points:
        kept.setdefault(point.step // stride, point)
    chosen = tuple(kept.values())
    return chosen if chosen[-1] is newest else (*chosen, newest)


def _short(value: float | None) -> float | None:
    """Four significant digits: it is drawn, and written with every status."""
    known = finite(value)
    return None if known is None else float(f"{known:.4g}")
