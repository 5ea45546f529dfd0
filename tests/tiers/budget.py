"""What of the deep tier fits into some minutes, by what each file took when all of it ran last.

`make test-all` writes the seconds of each file into deep.tsv, beside this module. Two workers share the time; what was never
measured counts as two minutes. First come the tests that have changed, then those that a table names for what changed
(tests/changed.py), then those that lead there; of each kind the cheapest first, which are most promises a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oarlock_local.pytest_tiers import Tier
from tests.changed import Nearness
from tests.tiers.lanes import WORKERS
from tests.tiers.report import Test

COSTS = Path(__file__).with_name("deep.tsv")
UNMEASURED = 120.0
START = 25.0
"""Seconds of each worker of a suite with local nodes until its first test runs."""
WITH_A_TARGET = ("tests/argo/", "tests/gangs/", "tests/images/", "tests/soak/")
"""Folders with make targets of their own: where minutes are counted, none of their tests is run."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of tests, by its path below the repository, and the seconds that its deep tests take."""

    name: str
    seconds: float


def fitting(chosen: Mapping[str, Nearness], *, minutes: float) -> tuple[list[str], list[File]]:
    """Of test files, those that fit, and those that do not."""
    costs = read()
    files = [File(name, costs.get(name, UNMEASURED)) for name in chosen if not name.startswith(WITH_A_TARGET)]
    workers = WORKERS[Tier.DEEP]
    suites = {file.name.split("/", maxsplit=1)[0] for file in files}
    room = minutes * 60 * workers - START * workers * len(suites)
    taken: list[str] = []
    left_out: list[File] = []
    for file in sorted(files, key=lambda file: (chosen[file.name], file.seconds, file.name)):
        if file.seconds <= room:
            room -= file.seconds
            taken.append(file.name)
        else:
            left_out.append(file)
    return taken, left_out


def told(chosen: Iterable[str], left_out: Iterable[File], *, minutes: float) -> str:
    """Lines that name what is not run: what did not fit, and what has a target of its own; empty where there is none."""
    rows = [f"  {file.name} ({file.seconds:.0f} s)\n" for file in left_out]
    own = sorted({name.split("/")[1] for name in chosen if name.startswith(WITH_A_TARGET)})
    lines = [
        f"not run here: what the change can break of {', '.join(own)} (make argo-test, gangs-test, images-test, soak)\n"
    ]
    head = f"{len(rows)} files of the deep tier did not fit into {minutes:g} minutes; `make test-all` runs them:\n"
    return "".join((*(lines if own else ()), *((head, *rows) if rows else ())))


def read() -> dict[str, float]:
    """Seconds of each file's deep tests."""
    if not COSTS.exists():
        return {}
    rows = (line.split("\t") for line in COSTS.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for name, seconds in rows}


def write(tests: Iterable[Test]) -> None:
    """Keep what the deep tests of each file took. One that was skipped here may take long elsewhere."""
    seconds: dict[str, float] = {}
    for test in (test for test in tests if test.tier == Tier.DEEP and test.outcome != "skipped"):
        seconds[test.file] = seconds.get(test.file, 0.0) + test.seconds
    COSTS.write_text("".join(f"{name}\t{seconds[name]:.0f}\n" for name in sorted(seconds)), encoding="utf-8")
