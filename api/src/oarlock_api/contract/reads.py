"""What a pod's agent tells those who ask from within the pod, as the API server's port-forward does. For Python 3.10.

    GET /figures?since=STEP                              this attempt's figures after a step, as `figures_body` writes them
    GET /validation/index.json                           the pictures' index, as it lies in the output
    GET /validation/step-200/boat-1024x1024.png          a picture; see contract.pictures for the names

Everybody else hears 403: what a run makes is nobody's who only reaches the pod (docs/decisions/0057).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from oarlock_api.contract.figures import FIGURES, Figures, parse_figures
from oarlock_api.contract.pictures import FOLDER
from oarlock_api.contract.wire import WireError, finite, integer, parse_object, text

FIGURES_PATH = "/figures"
PICTURES_PATH = f"/{FOLDER}/"
MOST_FIGURES = 1024
"""Steps of one answer."""
MAX_BODY = 2**20
"""Bytes of /figures: a row has at most some 300."""
WITHIN_ONLY = (
    "this pod tells figures and pictures to those who ask from within it alone, as kubectl port-forward does "
    "(kubectl port-forward POD 9400, then http://localhost:9400): that takes the right to forward ports of pods\n"
)
"""What everybody else hears, with 403."""
_VERSION = 1
_NAMES = ["time", *(row.wire for row in FIGURES.values())]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """The figures of one step. `time`: when the agent heard of it, RFC 3339 in UTC."""

    time: str
    figures: Figures


def figures_body(attempt: int, steps: Iterable[StepFigures]) -> str:
    """Steps as a table: its columns' names once, then a row for each step."""
    rows = [[one.time, *(finite(getattr(one.figures, name)) for name in FIGURES)] for one in steps]
    body = {"version": _VERSION, "attempt": attempt, "names": _NAMES, "rows": rows}
    return json.dumps(body, separators=(",", ":"))


def parse_figures_body(body: str) -> tuple[int, list[StepFigures]]:
    """The attempt and its steps. Columns that are not known, and rows without a step, are left out. Raises WireError."""
    raw = parse_object(body, max_bytes=MAX_BODY)
    attempt, names, rows = integer(raw.get("attempt")), raw.get("names"), raw.get("rows")
    if attempt is None or not isinstance(names, list) or not isinstance(rows, list):
        raise WireError("attempt, names or rows are missing")
    columns = [text(name, 64) for name in names[:64]]
    found = []
    for row in rows[:MOST_FIGURES]:
        fields = dict(zip(columns, row, strict=False)) if isinstance(row, list) else {}
        figures = parse_figures(fields)
        if figures.step is not None:
            found.append(StepFigures(time=text(fields.get("time"), 40), figures=figures))
    return attempt, found
