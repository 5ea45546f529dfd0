"""What of the deep tier fits into some minutes, by what each file took when all of it ran last.

`make test-all` writes the seconds of each file into deep.tsv, beside this module. Two workers share the time; what was never
measured counts as two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oarlock_local.pytest_tiers import Tier
from tests.tiers.lanes import WORKERS, Part
from tests.tiers.report import Test

COSTS = Path(__file__).with_name("deep.tsv")
UNMEASURED = 120.0
START = 25.0
"""Seconds of each worker of a suite with local nodes until its first test runs."""


OF_THEIR_OWN = ("tests/argo/", "tests/gangs/", "tests/images/", "tests/soak/")
"""Folders with make targets of their own: where minutes are counted, none of their tests is run."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of tests, by its path below the repository, and the seconds that its deep tests take."""

    name: str
    seconds: float


def fitting(parts: Sequence[Part], *, minutes: float) -> tuple[list[Part], list[File]]:
    """The parts without the files that do not fit, and these files. The cheapest files come first: most promises a minute."""
    costs = read()
    names = [_below_root(part, name) for part in parts for name in part.files]
    files = [File(name, costs.get(name, UNMEASURED)) for name in names if not name.startswith(OF_THEIR_OWN)]
    workers = WORKERS[Tier.DEEP]
    room = minutes * 60 * workers - START * workers * len(parts)
    taken: set[str] = set()
    left_out: list[File] = []
    for file in sorted(files, key=lambda file: (file.seconds, file.name)):
        if file.seconds <= room:
            room -= file.seconds
            taken.add(file.name)
        else:
            left_out.append(file)
    kept = [Part(part.suite, tuple(name for name in part.files if _below_root(part, name) in taken)) for part in parts]
    return [part for part in kept if part.files], left_out


def told(left_out: Iterable[File], *, minutes: float) -> str:
    """Lines that name what did not fit."""
    rows = [f"  {file.name} ({file.seconds:.0f} s)\n" for file in left_out]
    return (
        f"{len(rows)} files of the deep tier did not fit into {minutes:g} minutes; `make test-all` runs them:\n"
        + "".join(rows)
    )


def read() -> dict[str, float]:
    """Seconds of each file's deep tests."""
    if not COSTS.exists():
        return {}
    rows = (line.split("\t") for line in COSTS.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for name, seconds in rows}


def write(tests: Iterable[Test]) -> None:
    """Keep what the deep tests of each file took."""
    seconds: dict[str, float] = {}
    for test in (test for test in tests if test.tier == Tier.DEEP):
        seconds[test.file] = seconds.get(test.file, 0.0) + test.seconds
    COSTS.write_text("".join(f"{name}\t{seconds[name]:.0f}\n" for name in sorted(seconds)), encoding="utf-8")


def _below_root(part: Part, name: str) -> str:
    return f"{part.suite}/{name}"
