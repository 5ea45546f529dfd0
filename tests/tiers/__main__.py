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
from collections.abc import Iterable

from oarlock_local.pytest_tiers import Tier
from tests.changed import SUITES, Nearness, UnknownCommitError, chosen_since
from tests.tiers import budget, history, report
from tests.tiers.lanes import ROOT, Ended, Part, make_what_tests_need, parts_of, run, worst


def main(arguments: list[str]) -> int:
    """Run what is asked for; 1 where a test failed."""
    asked = _asked(arguments)
    make_what_tests_need(asked.suites or SUITES)
    records, commit = report.begin(), history.commit()
    began = time.monotonic()
    ended: list[Ended] = []
    for tier in (Tier.QUICK, Tier.DEEP) if asked.tier is Tier.ALL else (asked.tier,):
        parts, not_run = _parts(asked, tier)
        if not parts and not not_run:
            sys.stdout.write(f"no test of the {tier} tier can be broken by what changed\n")
        ended.append(run(parts, tier, minutes=asked.minutes, extra=_extra()))
        sys.stdout.write(not_run)
    seconds = time.monotonic() - began
    tests = report.read(records)
    if asked.record:
        history.add(tests, of=commit, tier=asked.tier, seconds=seconds, ended=worst(ended))
    sys.stdout.write(report.summary(tests, seconds=seconds, records=records))
    # What passed alone has passed for as long as the record of ten runs is not whole: docs/decisions/0083, point 6.
    return 1 if Ended.FAILED in ended else 0


def _extra() -> list[str]:
    return shlex.split(os.environ.get("PYTEST_ARGS", ""))


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
    if asked.record and (asked.suites or asked.changed or _extra()):
        parser.error("--record is for all tests: what a part of them takes says nothing of a run")
    if unknown := set(asked.suites) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    return asked


def _chosen(commit: str, suites: Iterable[str], tier: Tier) -> dict[str, Nearness]:
    try:
        chosen = chosen_since(ROOT, commit, tier)
    except UnknownCommitError:
        sys.exit(
            f"tests/run: --changed {commit}: git knows no such commit. Suites come before it: tests/run api --changed"
        )
    return {name: near for name, near in chosen.items() if name.split("/", maxsplit=1)[0] in suites}


def _parts(asked: argparse.Namespace, tier: Tier) -> tuple[list[Part], str]:
    """What is run of each suite, and lines that name what is not."""
    suites = asked.suites or list(SUITES)
    if asked.changed is None:
        return [Part(suite) for suite in suites], ""
    chosen = _chosen(asked.changed, suites, tier)
    if asked.minutes is None:
        return parts_of(chosen), ""
    taken, left_out = budget.fitting(chosen, minutes=asked.minutes)
    return parts_of(taken), budget.told(chosen, left_out, minutes=asked.minutes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
