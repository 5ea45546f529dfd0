"""The losses on data that is not trained on: of checkpoints while training, and of a job with task Evaluate."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.report.curves import Figure, chart
from oarlock.report.markup import Html, cut, element
from oarlock.report.words import figure, when, whole
from oarlock.story import Point, UnseenLoss

MOST_DATA_SETS = 6
MOST_ROWS = 20


def unseen(losses: Sequence[UnseenLoss]) -> Html | None:
    """The section; None where there is no such loss."""
    if not losses:
        return None
    names = list(dict.fromkeys(one.data_set for one in losses))
    shown = names[:MOST_DATA_SETS]
    told = {(one.step, one.data_set): one for one in losses}
    steps = sorted({one.step for one in losses})
    rows = [
        element(
            "tr",
            element("td", whole(step), class_="number"),
            element("td", next((when(known.time) for name in names if (known := told.get((step, name)))), "")),
            *(element("td", _loss(told.get((step, name))), class_="number") for name in shown),
        )
        for step in reversed(steps[-MOST_ROWS:])
    ]
    head = (element("th", cut(name, 120), scope="col") for name in ("Step", "Time (UTC)", *shown))
    body = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    table = element("div", body, class_="wide", tabindex="0")
    left_out = [f"{len(names) - len(shown):,} more data sets"] if len(names) > len(shown) else []
    left_out += [f"{len(steps) - MOST_ROWS:,} earlier steps"] if len(steps) > MOST_ROWS else []
    return element(
        "section",
        element("h2", "Loss on unseen data", id="unseen"),
        *(_chart(name, losses) for name in shown),
        element("details", element("summary", "The losses as a table"), table) if len(steps) > 1 else table,
        element("p", f"{' and '.join(left_out)} are left out of the table.", class_="dim") if left_out else None,
        aria_labelledby="unseen",
    )


def _chart(name: str, losses: Sequence[UnseenLoss]) -> Html | None:
    points = [
        Point(step=one.step, loss=one.loss, attempt=one.attempt, time=one.time)
        for one in losses
        if one.data_set == name
    ]
    return (
        chart(Figure(cut(name, 120), "", "loss", lambda point: point.loss), points, over_time=False)
        if points[1:]
        else None
    )


def _loss(known: UnseenLoss | None) -> str:
    return figure(known.loss if known else None)
