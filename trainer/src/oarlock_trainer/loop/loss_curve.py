"""The loss of a whole run, over all its attempts, for people: as JSON and as a picture.

<output>/reports/training.json    up to 400 stretches of steps with mean, lowest and highest loss; losses on unseen data
<output>/reports/training.svg     the same as curves

Made from metrics.jsonl when the run is done. Of a step that several attempts did, the last one's figures count.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import integer, number
from oarlock_trainer.loop.metrics import FILE
from oarlock_trainer.runtime import svg
from oarlock_trainer.runtime.atomic_write import write_bytes, write_json
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_STRETCHES = 400
"""More than a picture of this width can show."""
_FIGURES = ("loss", "learningRate", "gradientNorm", "secondsPerStep")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _FOOT = 900, 420, 70, 40, 20, 40
_COLOURS = ("#b5502f", "#5b8c3a", "#7a4fa3", "#b38b1d")
"""Of the curves of unseen data, in turn."""
_TICKS = 5

Point = tuple[float, float]


def write(output: Path) -> None:
    """Write both files, if any step was told of. Raises StorageError. One rank only, after the last step."""
    with storage("writing the report of the training"), (output / FILE).open("rb") as lines:
        report = describe(lines)
        if report["stretches"]:
            folder = output / "reports"
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "training.json", report)
            write_bytes(folder / "training.svg", picture(report).encode())


def describe(lines: Iterable[bytes]) -> dict[str, Any]:
    """The report as JSON, from the lines of metrics.jsonl. A line that is no line of figures is passed over."""
    steps: dict[int, list[float | None]] = {}
    unseen: dict[str, dict[int, float]] = {}
    attempts, last = set(), 0
    for fields in _parsed(lines):
        step = integer(fields.get("step"))
        if step is None:
            continue
        if "loss" in fields:
            steps[step] = [number(fields.get(name)) for name in _FIGURES]
            attempts.add(integer(fields.get("attempt")))
            last = step
        losses = fields.get("evaluationLoss")
        for name, loss in losses.items() if isinstance(losses, dict) else ():
            if (known := number(loss)) is not None:
                unseen.setdefault(name, {})[step] = known
    done = sorted(step for step in steps if step <= last)
    each = math.ceil(len(done) / _STRETCHES) or 1
    return {
        "steps": last,
        "attempts": len(attempts),
        "stretches": [
            _stretch(done[first : first + each], [steps[step] for step in done[first : first + each]])
            for first in range(0, len(done), each)
        ],
        "evaluation": {
            name: [{"step": step, "loss": losses[step]} for step in sorted(losses) if step <= last]
            for name, losses in unseen.items()
        },
    }


def picture(report: dict[str, Any]) -> str:
    """The report as SVG: the mean as a line within the lowest and the highest loss of each stretch."""
    stretches = [one for one in report["stretches"] if one["loss"] is not None]
    unseen = {name: [(one["step"], one["loss"]) for one in points] for name, points in report["evaluation"].items()}
    mean = [((one["first"] + one["last"]) / 2, one["loss"]) for one in stretches]
    low = [(place, one["lowest"]) for (place, _), one in zip(mean, stretches, strict=True)]
    high = [(place, one["highest"]) for (place, _), one in zip(mean, stretches, strict=True)]
    heights = [loss for points in (low, high, *unseen.values()) for _, loss in points]
    bottom, top = (min(heights), max(heights)) if heights else (0.0, 1.0)
    across, up = _scale(0, report["steps"]), _scale(bottom, top)

    def placed(points: Sequence[Point]) -> list[Point]:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _FOOT
        return [(_LEFT + wide * across(step), _TOP + tall * (1 - up(loss))) for step, loss in points]

    attempts = f"{report['attempts']} attempt" + ("" if report["attempts"] == 1 else "s")
    elements = [svg.text(_LEFT, f"loss of {report['steps']:,} steps in {attempts}", top=20, weight="bold")]
    for tick in range(_TICKS):
        loss, step = bottom + (top - bottom) * tick / (_TICKS - 1), round(report["steps"] * tick / (_TICKS - 1))
        (left, height), (right, _) = placed([(0, loss), (report["steps"], loss)])
        elements.append(svg.line([(left, height), (right, height)], "#dddddd", width=1))
        elements.append(svg.text(_LEFT - 6, f"{loss:.4g}", top=height + 4, anchor="end"))
        ((place, _),) = placed([(step, bottom)])
        elements.append(svg.text(place, f"{step:,}", top=_HEIGHT - _FOOT + 18, anchor="middle"))
    elements += [svg.area(placed([*low, *reversed(high)]), svg.LIGHT), svg.line(placed(mean), svg.DARK)]
    for place, (name, points) in enumerate(unseen.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        elements.append(svg.line(placed(points), colour, width=2))
        elements.append(f'<g fill="{colour}">{svg.text(_LEFT + 260 + 160 * place, f"unseen: {name}", top=20)}</g>')
    return svg.document(_WIDTH, _HEIGHT, elements)


def _stretch(steps: Sequence[int], figures: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Mean figures of some steps; None where no step had one."""
    known = {name: [one[place] for one in figures] for place, name in enumerate(_FIGURES)}
    losses = [loss for loss in known["loss"] if loss is not None]
    return {
        "first": steps[0],
        "last": steps[-1],
        **{name: _mean(values) for name, values in known.items()},
        "lowest": min(losses, default=None),
        "highest": max(losses, default=None),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _scale(low: float, high: float) -> Any:
    """From 0 to 1 between two values; everything is in the middle where they are one."""
    return lambda value: (value - low) / (high - low) if high > low else 0.5


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:
            continue  # a crash cut it off
        if isinstance(fields, dict):
            yield fields
