"""What runs of the tests took and what failed in them: runs.tsv and deep.tsv beside this module, which git tracks.

runs.tsv has a line for each run of `make test-all` and of `tests/repeat`: when, the commit (with a `+` where files differed
from it), the tier, what else the machine did, how it ended, minutes, CPU minutes of the tests, passed, failed, skipped, and
what failed, be it at the first try alone.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from oarlock_local.pytest_tiers import Tier
from tests.tiers import budget
from tests.tiers.lanes import Ended
from tests.tiers.report import Test

RUNS = Path(__file__).with_name("runs.tsv")
COLUMNS = (
    "date",
    "commit",
    "tier",
    "beside",
    "ended",
    "minutes",
    "CPU minutes",
    "passed",
    "failed",
    "skipped",
    "what failed",
)


def add(
    tests: Sequence[Test],
    *,
    of: str,
    tier: Tier,
    seconds: float,
    ended: Ended,
    part: str = "",
    beside: str = "nothing",
) -> None:
    """Add a run of the commit `of`. That of both tiers also tells what each file of the deep one takes."""
    counts = Counter(test.outcome for test in tests)
    names = [test.name for test in tests if test.outcome == "failed"]
    row = (
        time.strftime("%Y-%m-%d"), of, f"{tier}{part}", beside, ended, f"{seconds / 60:.1f}",
        f"{sum(test.cpu for test in tests) / 60:.1f}", counts["passed"], counts["failed"], counts["skipped"],
        " ".join(names) or "-",
    )  # fmt: skip
    lines = RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else ["\t".join(COLUMNS)]
    RUNS.write_text("\n".join((*lines, "\t".join(map(str, row)))) + "\n", encoding="utf-8")
    if tier is Tier.ALL and ended is not Ended.FAILED:
        budget.write(tests)


def commit() -> str:
    """The commit that is checked out, short; with a `+` where tracked files other than these tables differ from it."""
    head = ["git", "rev-parse", "--short=8", "HEAD"]
    found = subprocess.run(head, cwd=RUNS.parent, check=True, capture_output=True, text=True).stdout.strip()
    tables = [f":!/tests/tiers/{table}" for table in (RUNS.name, "deep.tsv")]
    differs = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ":/", *tables], cwd=RUNS.parent, check=False)
    return found + "+" * differs.returncode
