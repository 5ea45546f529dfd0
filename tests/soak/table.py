"""What the faults of a soak cost, in tables: by kind and rung, and where the time went. Pure."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one fault: `rung` is what mended it, `down` the seconds from it to the first new step.

    `down` of a fault that started nothing anew is the longest time without a step. `start`: until the new ranks were about
    to do their first step, None without any. `alone`: no other fault was done while it was mended.
    """

    kind: str
    rung: str
    alone: bool
    down: float
    start: float | None = None
    why: str = ""

    @property
    def first_step(self) -> float | None:
        """Seconds from the ranks' start to their first step."""
        return None if self.start is None else self.down - self.start


_POD = re.compile(r"\bsoak-\d+-\d+-\d+(-i\d+)?")
HEAD = ("fault", "mended by", "count", "down: median", "p90", "most", "of it until ranks are ready", "first step")


def table(costs: Iterable[Cost]) -> str:
    """A row of Markdown for each kind and rung; faults that met others stand together."""
    rows: dict[tuple[str, str], list[Cost]] = {}
    for cost in costs:
        key = (cost.kind, cost.rung) if cost.alone else ("several at once", cost.rung)
        rows.setdefault(key, []).append(cost)
    lines = [HEAD, tuple("---" for _ in HEAD), *(_row(*key, rows[key]) for key in sorted(rows))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def without_effect(costs: Sequence[Cost], kinds: Collection[str]) -> list[str]:
    """Of `kinds`, those that were done alone three times or more and started nothing anew: they do not reach the job."""
    rungs: dict[str, list[str]] = {}
    for cost in costs:
        if cost.alone and cost.kind in kinds:
            rungs.setdefault(cost.kind, []).append(cost.rung)
    return sorted(kind for kind, found in rungs.items() if len(found) >= 3 and set(found) == {"nothing"})


def reasons(costs: Iterable[Cost]) -> str:
    """Why faults cost an attempt, how often: a row of Markdown for each kind and reason."""
    found = Counter((cost.kind, _POD.sub("POD", cost.why)) for cost in costs if cost.rung == "an attempt")
    lines = [("fault", "why all pods were made anew", "count"), ("---", "---", "---")]
    lines += [(kind, why or "-", str(count)) for (kind, why), count in sorted(found.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(kind: str, rung: str, costs: Sequence[Cost]) -> tuple[str, ...]:
    down = [cost.down for cost in costs]
    figures = (statistics.median(down), percentile_90(down), max(down))
    stages = (_median([cost.start for cost in costs]), _median([cost.first_step for cost in costs]))
    return (kind, rung, str(len(costs)), *(f"{seconds:.1f}" for seconds in figures), *stages)


def _median(seconds: Iterable[float | None]) -> str:
    known = [one for one in seconds if one is not None]
    return f"{statistics.median(known):.1f}" if known else "-"


def percentile_90(seconds: Sequence[float]) -> float:
    """By the nearest rank."""
    return sorted(seconds)[-(-9 * len(seconds) // 10) - 1]
