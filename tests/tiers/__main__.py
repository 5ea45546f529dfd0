"""Runs the tests: `tests/run [SUITE ...]`.

    tests/run                                  the quick tier of all suites: `make test`
    tests/run --all --record                   both tiers, and a line of what it took into runs.tsv: `make test-all`
    tests/run api operator                     the quick tier of two suites
    tests/run --changed [COMMIT]               of the quick tier what a change since then can break, by default since HEAD
    tests/run --deep --changed C --minutes 12  of the deep tier the same, as much as fits into twelve minutes

What is in PYTEST_ARGS goes to every run of pytest.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time

from oarlock_local.pytest_tiers import Tier
from tests.changed import SUITES, chosen_since
from tests.tiers import budget, history, report
from tests.tiers.lanes import ROOT, Part, make_what_tests_need, run


def main(arguments: list[str]) -> int:
    """Run what is asked for; 1 where a test failed."""
    asked = _asked(arguments)
    make_what_tests_need(asked.suites or SUITES)
    records = report.begin()
    began = time.monotonic()
    failed = False
    for tier in (Tier.QUICK, Tier.DEEP) if asked.tier is Tier.ALL else (asked.tier,):
        parts = _parts(asked, tier)
        left_out: list[budget.File] = []
        if asked.minutes is not None:
            parts, left_out = budget.fitting(parts, minutes=asked.minutes)
        if not parts and not left_out:
            sys.stdout.write(f"no test of the {tier} tier can be broken by what changed\n")
        failed |= not run(parts, tier, minutes=asked.minutes, extra=shlex.split(os.environ.get("PYTEST_ARGS", "")))
        if left_out:
            sys.stdout.write(budget.told(left_out, minutes=asked.minutes))
    seconds = time.monotonic() - began
    tests = report.read(records)
    if asked.record:
        history.add(tests, tier=asked.tier, seconds=seconds, failed=failed)
    sys.stdout.write(report.summary(tests, seconds=seconds, records=records))
    return 1 if failed else 0


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; by default all")
    tiers = parser.add_mutually_exclusive_group()
    tiers.add_argument("--deep", dest="tier", action="store_const", const=Tier.DEEP, help="the deep tier alone")
    tiers.add_argument("--all", dest="tier", action="store_const", const=Tier.ALL, help="both tiers")
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="COMMIT", help="what changed since that commit")
    parser.add_argument("--record", action="store_true", help="add what it took to the tracked tests/tiers/runs.tsv")
    parser.add_argument("--minutes", type=float, help="leave out what does not fit into so many minutes, and name it")
    asked = parser.parse_args(arguments)
    asked.tier = asked.tier or Tier.QUICK
    if asked.minutes is not None and not (asked.changed and asked.tier is Tier.DEEP):
        parser.error("--minutes is for --deep --changed: it leaves out whole files of the deep tier")
    if asked.record and (asked.suites or asked.changed):
        parser.error("--record is for all suites: what a part of them takes says nothing of a run")
    if unknown := set(asked.suites) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    return asked


def _parts(asked: argparse.Namespace, tier: Tier) -> list[Part]:
    """What is run of each suite."""
    suites = asked.suites or list(SUITES)
    if asked.changed is None:
        return [Part(suite) for suite in suites]
    chosen = chosen_since(ROOT, asked.changed, tier)
    return [Part(suite, tuple(chosen[suite])) for suite in suites if suite in chosen]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
