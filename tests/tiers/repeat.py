"""Runs the quick tier again and again, and adds a line for each run to runs.tsv.

tests/repeat 6                        six runs, with nothing beside them
tests/repeat 2 --beside load          beside a program that keeps one core busy
tests/repeat 2 --beside workers       with three times the workers where tests need no cluster
tests/repeat 3 api operator           a part of it
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from oarlock_local.pytest_tiers import Tier
from tests.changed import SUITES
from tests.tiers import history, report
from tests.tiers.lanes import Ended, Part, make_what_tests_need, run

BESIDE = {
    "nothing": "nothing",
    "load": "load on one core",
    "workers": "three times the workers where tests need no cluster",
}


def main(arguments: Sequence[str]) -> int:
    """Run as often as asked; 1 where a run failed."""
    parser = argparse.ArgumentParser(
        prog="tests/repeat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=int, help="how many")
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="SUITE", help="by default all")
    parser.add_argument("--beside", choices=BESIDE, default="nothing", help="what else the machine does")
    asked = parser.parse_args(arguments)
    suites = asked.suites or SUITES
    part = "" if len(suites) == len(SUITES) else f" of {' '.join(suites)}"
    make_what_tests_need(suites)
    ever_failed = False
    for number in range(1, asked.runs + 1):
        records, commit = report.begin(), history.commit()
        began = time.monotonic()
        with load() if asked.beside == "load" else nullcontext():
            ended = run([Part(suite) for suite in suites], Tier.QUICK, times=3 if asked.beside == "workers" else 1)
        seconds = time.monotonic() - began
        history.add(
            report.read(records),
            of=commit,
            tier=Tier.QUICK,
            part=part,
            seconds=seconds,
            ended=ended,
            beside=BESIDE[asked.beside],
        )
        ever_failed |= ended is not Ended.PASSED
        sys.stdout.write(f"run {number} of {asked.runs}{part}: {ended}, {seconds / 60:.1f} min\n")
    return 1 if ever_failed else 0


@contextmanager
def load() -> Iterator[None]:
    """Keep one core busy."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
