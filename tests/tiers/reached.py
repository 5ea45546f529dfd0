"""Which lines of the product the quick tier reaches outside of pods: `make coverage`.

    python -m tests.tiers.reached

Runs the tests with every Python process of this machine measured, forks among them: the tests themselves, agents, ranks of
the trainer's tests, operators, commands. Pods are not: what only they reach is what is left. Writes reached.tsv beside this
module, a line for each file: its lines of code, and how many of them nothing reached. Nothing is judged by these figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import coverage

from tests.changed import SUITES
from tests.tiers.lanes import ROOT

TABLE = Path(__file__).with_name("reached.tsv")
FOLDER = ROOT / "out" / "coverage"
PACKAGES = [ROOT / suite / "src" for suite in SUITES if suite not in {"tests", "local"}]
"""What users run; `local` is what the tests stand on."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the product: its path below the repository, its lines of code, and those that nothing reached."""

    path: str
    lines: int
    missed: int


def main() -> int:
    """Measure a run of tests, write the table where all passed, and print one line for each distribution; the tests' code."""
    settings = _settings()
    environment = {**os.environ, "COVERAGE_PROCESS_START": str(settings)}  # coverage.py looks for it in each Python
    code = subprocess.run([ROOT / "tests" / "run"], env=environment, check=False).returncode
    files = _measured(settings)
    if code == 0:
        TABLE.write_text("".join(f"{file.path}\t{file.lines}\t{file.missed}\n" for file in files), encoding="utf-8")
    sys.stdout.write(by_distribution(files))
    return code


def by_distribution(files: Iterable[Module]) -> str:
    """A table in Markdown: lines of code, and the share of them that was reached."""
    totals: dict[str, list[int]] = {}
    for file in files:
        for name in (file.path.split("/", maxsplit=1)[0], "all"):
            total = totals.setdefault(name, [0, 0])
            total[0] += file.lines
            total[1] += file.missed
    rows = [
        f"| {name} | {lines} | {100 * (lines - missed) / lines:.1f} |"
        for name, (lines, missed) in sorted(totals.items(), key=lambda row: (row[0] == "all", row[0]))
    ]
    return "\n".join(("| distribution | lines of code | % reached |", "| --- | --- | --- |", *rows)) + "\n"


def _settings() -> Path:
    """coverage.py's configuration. A process that ends by os._exit, as every rank does, writes what it has before."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("data*"):
        old.unlink()
    file = FOLDER / "settings.ini"
    sources = "".join(f"\n    {folder}" for folder in PACKAGES)
    file.write_text(
        f"[run]\ndata_file = {FOLDER / 'data'}\nparallel = true\npatch = _exit, fork\nsource = {sources}\n",
        encoding="utf-8",
    )
    return file


def _measured(settings: Path) -> list[Module]:
    found = coverage.Coverage(config_file=str(settings))
    found.combine(strict=True)
    files = []
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            _, lines, _, missed, _ = found.analysis2(str(path))
            if lines:
                files.append(Module(path.relative_to(ROOT).as_posix(), len(lines), len(missed)))
    return files


if __name__ == "__main__":
    sys.exit(main())
