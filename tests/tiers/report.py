"""What a run of tests cost, from the records of its processes (oarlock_local.pytest_records).

    python -m tests.tiers.report [FOLDER]     tables of the suites, the fifty dearest tests by CPU seconds, and the skips

FOLDER is by default that of the newest run, in out/tests.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock_local.pytest_records import FOLDER

RECORDS = Path(__file__).resolve().parents[2] / "out" / "tests"
DEAREST = 50


def begin() -> Path:
    """A folder for the records of a run that begins; all processes of its tests find it."""
    folder = RECORDS / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    os.environ[FOLDER] = str(folder)
    return folder


@dataclass(frozen=True, slots=True)
class Test:
    """One test as it ran. Seconds are of the whole test with its fixtures; `cpu` counts its processes as well."""

    name: str
    tier: str
    outcome: str
    seconds: float
    cpu: float
    reason: str = ""
    """Why it was skipped."""
    phase: str = ""
    """Where it failed: setup, call or teardown."""

    @property
    def suite(self) -> str:
        """The distribution whose test it is, or `tests`."""
        return self.name.split("/", maxsplit=1)[0]

    @property
    def file(self) -> str:
        """Its file, by its path below the repository."""
        return self.name.split("::", maxsplit=1)[0]


def read(folder: Path) -> list[Test]:
    """The tests of a run; of one that was tried again, how it ended first: that is what wants a look."""
    found: dict[str, Test] = {}
    for told in _lines(folder):
        if "test" in told:
            facts = (told[key] for key in ("test", "tier", "outcome", "seconds", "cpu"))
            test = Test(*facts, reason=told.get("reason", ""), phase=told.get("phase", ""))
            found.setdefault(test.name, test)
    return list(found.values())


def held(folder: Path) -> int:
    """How many tests one run of pytest was to run, by what its processes say; 0 where none came so far."""
    return max((told["holds"] for told in _lines(folder) if "holds" in told), default=0)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.rglob("*.jsonl"), key=lambda file: file.stat().st_mtime):
        yield from map(json.loads, file.read_text("utf-8").splitlines())


def summary(tests: Sequence[Test], *, seconds: float, records: Path) -> str:
    """The lines that close a run."""
    ended = Counter(test.outcome for test in tests)
    counts = ", ".join(f"{ended[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    return "".join(
        (
            skips(tests),
            f"{seconds / 60:.1f} min, {sum(test.cpu for test in tests) / 60:.1f} of them of CPU; each test in {records}\n",
            f"{counts}\n",
        )
    )


def skips(tests: Iterable[Test]) -> str:
    """Lines of how many tests were skipped for which reason."""
    reasons = Counter(test.reason for test in tests if test.outcome == "skipped")
    return "".join(f"skipped, {count}: {reason}\n" for reason, count in reasons.most_common())


def by_suite(tests: Iterable[Test]) -> str:
    """A table in Markdown: tests, seconds of all workers, and CPU seconds of each suite."""
    suites: dict[str, list[Test]] = {}
    for test in tests:
        suites.setdefault(test.suite, []).append(test)
    rows = [
        f"| {suite} | {len(found)} | {sum(each.seconds for each in found):.0f} | {sum(each.cpu for each in found):.0f} |"
        for suite, found in sorted(suites.items())
    ]
    return "\n".join(("| suite | tests | s, all workers | CPU s |", "| --- | --- | --- | --- |", *rows)) + "\n"


def dearest(tests: Iterable[Test], *, count: int = DEAREST) -> str:
    """A table in Markdown of the tests that used most CPU, shared clusters and their pods left out."""
    rows = [
        f"| {test.cpu:.1f} | {test.seconds:.1f} | {test.name} |"
        for test in sorted(tests, key=lambda test: test.cpu, reverse=True)[:count]
    ]
    return "\n".join(("| CPU s | s | test |", "| --- | --- | --- |", *rows)) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the report of a run."""
    folders = sorted(RECORDS.iterdir()) if RECORDS.exists() else []
    folder = Path(arguments[0]) if arguments else folders[-1] if folders else None
    if folder is None or not (tests := read(folder)):
        sys.stderr.write(f"no run of tests is recorded in {folder or RECORDS}; tests/run makes one\n")
        return 1
    sys.stdout.write(f"{by_suite(tests)}\n{dearest(tests)}\n{skips(tests)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
