"""What became of the tests of an earlier commit: kept, merged into others, moved to the deep tier, or dropped.

    python -m tests.tiers.moved OLD       writes moved.tsv beside this module

OLD is a folder of lists of that commit's tests, one a line, by their paths below the repository
(`pytest --collect-only -q` in each suite). What is not there any more must stand in a list below merged/, a line each: the
old test, `merged` or `dropped`, and the new test or the reason. Exits with 1 where one does not, or where what it was merged
into is not there.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from oarlock_local.pytest_tiers import Tier
from tests.changed import SUITES

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("moved.tsv")
MERGED = Path(__file__).with_name("merged")


def collected(tier: Tier) -> set[str]:
    """The tests of a tier today, by their paths below the repository."""
    found: set[str] = set()
    for suite in SUITES:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "--tier", tier]
        told = subprocess.run(command, cwd=ROOT / suite, check=True, capture_output=True, text=True).stdout
        names = [line for line in told.splitlines() if "::" in line]
        found |= {below(suite, name) for name in names}
    return found


def below(suite: str, name: str) -> str:
    """A test's name below the repository; pytest names it below the folder of the configuration that it found."""
    return name if (ROOT / name.split("::", maxsplit=1)[0]).exists() else f"{suite}/{name}"


def function(name: str) -> str:
    """A test without its parameters."""
    return name.split("[", maxsplit=1)[0]


def fates(
    old: Iterable[str], *, quick: set[str], deep: set[str], told: dict[str, tuple[str, str]]
) -> list[tuple[str, ...]]:
    """Rows of the table: an old test, how many cases it had, what became of it, and where it is or why it is not.

    A test that is kept as it was is counted with its file.
    """
    kept: Counter[str] = Counter()
    rows: Counter[tuple[str, str, str]] = Counter()
    quick_functions = set(map(function, quick))
    named_quick, named_deep = quick | quick_functions, deep | set(map(function, deep))
    for name in old:
        if name in quick:
            kept[name.split("::", maxsplit=1)[0]] += 1
        elif name in deep:
            beside = "some cases are quick" if function(name) in quick_functions else ""
            rows[function(name), "deep", beside] += 1
        else:
            fate, where = told.get(name) or told.get(function(name)) or ("LOST", "in no list of tests/tiers/merged")
            if fate == "merged" and where not in named_quick:
                fate = "merged, deep" if where in named_deep else "LOST"
            rows[function(name), fate, where] += 1
    files = [(file, str(count), "kept", "") for file, count in sorted(kept.items())]
    return [*files, *((name, str(count), fate, where) for (name, fate, where), count in sorted(rows.items()))]


def main(arguments: Sequence[str]) -> int:
    """Write the table, and say how many there are of each fate."""
    (folder,) = map(Path, arguments)
    old = [line for file in sorted(folder.iterdir()) for line in file.read_text("utf-8").splitlines() if "::" in line]
    told: dict[str, tuple[str, str]] = {}
    for file in sorted(MERGED.glob("*.tsv")):
        for line in file.read_text("utf-8").splitlines():
            name, fate, where = line.split("\t")
            told[name] = (fate, where)
    rows = fates(old, quick=collected(Tier.QUICK), deep=collected(Tier.DEEP), told=told)
    PAGE.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    counts: Counter[str] = Counter()
    for _, count, fate, _ in rows:
        counts[fate] += int(count)
    sys.stdout.write(
        f"{len(old)} tests of then: {', '.join(f'{number} {fate}' for fate, number in counts.most_common())}\n"
    )
    return 1 if counts["LOST"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
