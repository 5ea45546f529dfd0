"""What a measurement of bench/data.py says: a table on the terminal and a file of all rounds, with what others used."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from process_costs import machine_cpu_seconds

RESULTS = Path(__file__).parent / "results"
OTHERS = "others, cores"
NOISY_CORES = 0.25
"""Rounds in which others used more of the machine count where there is no better one."""
_NAME = 34

Figures = dict[str, float]
"""One round: figures by name and unit."""


@contextmanager
def watched(figures: Figures) -> Iterator[None]:
    """Add to the figures how many cores processes had meanwhile that are not ours; ours must have ended by the end."""
    began, machine, own = time.monotonic(), machine_cpu_seconds(), _own_cpu_seconds()
    yield
    used = machine_cpu_seconds() - machine - (_own_cpu_seconds() - own)
    figures[OTHERS] = max(used, 0.0) / (time.monotonic() - began)


def report(name: str, rounds: Mapping[str, Sequence[Figures]]) -> None:
    """Print all rounds of each contender and the median of the quiet ones; write results/data-NAME.json."""
    for title, measured in rounds.items():
        print(
            f"\n{title:<{_NAME}}" + "".join(f"{f'round {number}':>10}" for number in range(1, len(measured) + 1)),
            end="",
        )
        print(f"{'median':>10}")
        for figure in measured[0]:
            values = [*(one[figure] for one in measured), statistics.median(one[figure] for one in quiet(measured))]
            print(f"{figure:<{_NAME}}" + "".join(_shown(value) for value in values))
    RESULTS.mkdir(exist_ok=True)
    body = {"cores": len(os.sched_getaffinity(0)), "rounds": rounds}
    (RESULTS / f"data-{name}.json").write_text(json.dumps(body, indent=1) + "\n")


def quiet(measured: Sequence[Figures]) -> Sequence[Figures]:
    """The rounds that others left alone, or all where there is none."""
    return [one for one in measured if one[OTHERS] <= NOISY_CORES] or measured


def _shown(value: float) -> str:
    return f"{value:>10.3g}" if value < 100 else f"{value:>10,.0f}"


def _own_cpu_seconds() -> float:
    """Of this process and of all its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
