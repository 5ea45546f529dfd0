"""Runs parts of suites: the quick tier in lanes beside each other, the deep tier one suite after the other.

Each suite has its own pytest run, because `operator` is also a module of the standard library (docs/decisions/0002). In the
quick tier the trainer's tests without a cluster have two workers, and each other suite's have one process, for a second
worker would cost more for its imports than it saves; two such suites run at once. Beside them run those on the one control
plane and those on the one set of local nodes, one after the other, for these mostly wait; the clusters start meanwhile.
In the deep tier each worker has clusters of its own: what breaks nodes there may break them while another test runs.

A file stays with one worker, so that what its tests share (models, bundles) is made once; so do all files of the trainer that
share a process that forks ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from oarlock_local import machine
from oarlock_local.errors import LocalError
from oarlock_local.pytest_plugin import SHARED, control_plane_in, nodes_in
from oarlock_local.pytest_records import FOLDER
from oarlock_local.pytest_tiers import Lane, Tier
from tests.changed import SUITES
from tests.tiers import report

ROOT = Path(__file__).resolve().parents[2]
SUITES_ON = {Lane.CONTROL_PLANE: ("api", "operator", "tests", "local"), Lane.NODES: ("tests",)}
"""Suites with tests of the quick tier on a cluster, in the order in which they run: who changes the cluster is last."""
WORKERS = {Tier.QUICK: 1, Tier.DEEP: 2}
_OTHER_WORKERS = {Tier.QUICK: {"trainer": 2}, Tier.DEEP: {"trainer": 3, "local": 3}}
"""Workers where it is another number: tests of these suites wait for processes more than they compute."""
_SHORT_SUITES_AT_ONCE = 2


class Ended(StrEnum):
    """How a run of tests ended."""

    PASSED = "passed"
    ALONE = "failed, and passed alone"
    FAILED = "failed"


def worst(ended: Iterable[Ended]) -> Ended:
    """How several runs ended together."""
    return max(ended, key=list(Ended).index)


@dataclass(frozen=True, slots=True)
class Part:
    """What is run of one suite: all of it, or these files, by their paths below the suite's folder."""

    suite: str
    files: tuple[str, ...] = ()


def parts_of(files: Iterable[str]) -> list[Part]:
    """Test files, by their paths below the repository, as a part of each suite.

    In order: where files of one folder are named apart, pytest 9.1 does not find the fixtures of its conftest.
    """
    by_suite: dict[str, list[str]] = {}
    for name in files:
        suite, _, below = name.partition("/")
        by_suite.setdefault(suite, []).append(below)
    return [Part(suite, tuple(sorted(by_suite[suite]))) for suite in SUITES if suite in by_suite]


class Pytest(Protocol):
    """What runs pytest on a part; its exit code, and what it said unless it streams."""

    def __call__(
        self, part: Part, arguments: Sequence[str], environment: Mapping[str, str], *, streams: bool
    ) -> tuple[int, str]: ...


def make_what_tests_need(suites: Iterable[str]) -> None:
    """Build the local cluster's programs and install the browser, where they are not there.

    What is made for the first time takes longer than a test may. What can't be made is told by the tests that need it.
    """
    subprocess.run([Path(sys.executable).with_name("oarlock-local"), "build"], stdout=subprocess.DEVNULL, check=False)
    if {"client", "local", "tests"}.intersection(suites):
        subprocess.run(["make", "--silent", "browser"], cwd=ROOT, check=False)


def run(
    parts: Sequence[Part], tier: Tier, *, times: int = 1, minutes: float | None = None, extra: Sequence[str] = ()
) -> Ended:
    """Run the parts.

    `times`: with so many times the workers, where tests need no cluster. `minutes`: after so many, no further suite of the
    deep tier begins, and it is named. `extra` goes to pytest.
    """
    began = time.monotonic()
    runs = Runs(tier, times, extra)
    if tier is Tier.QUICK:
        with (
            tempfile.TemporaryDirectory(prefix="oarlock-tests-") as state,
            ThreadPoolExecutor() as pool,
            ThreadPoolExecutor(_SHORT_SUITES_AT_ONCE) as short,
        ):
            lanes = [pool.submit(_on_a_cluster, runs, lane, parts, Path(state)) for lane in SUITES_ON]
            for part in parts:
                threads = pool if part.suite in _OTHER_WORKERS[tier] else short
                lanes.append(threads.submit(runs.run, part, *pure(part.suite), *runs.workers(part.suite)))
            for each in lanes:
                each.result()
    else:
        for part in parts:
            if minutes is not None and time.monotonic() - began > minutes * 60:
                runs.say(f"== {part.suite} did not begin within {minutes:g} minutes: {' '.join(part.files)}")
            else:
                runs.run(part, *runs.workers(part.suite), streams=True)
    runs.try_again_alone()
    return runs.ended


def pure(suite: str) -> list[str]:
    """pytest's arguments for the tests of a suite without a cluster, and for those on one that no lane of it has."""
    lanes = [Lane.PURE, *(lane for lane, suites in SUITES_ON.items() if suite not in suites)]
    return [argument for lane in lanes for argument in ("--lane", lane)]


def _on_a_cluster(runs: Runs, lane: Lane, parts: Sequence[Part], state: Path) -> None:
    wanted = [part for suite in SUITES_ON[lane] for part in parts if part.suite == suite]
    if not wanted:
        return
    try:
        with _cluster(lane, state) as environment:
            for part in wanted:
                runs.run(part, "--lane", lane, environment=environment)
    except LocalError as error:
        runs.fail(f"the cluster of the lane {lane} did not start, or did not end: {error}")


@contextmanager
def _cluster(lane: Lane, state: Path) -> Iterator[dict[str, str]]:
    """Keep a lane's cluster for its tests; none where this machine can't run one, which the tests then tell."""
    on_nodes = lane is Lane.NODES
    if machine.why_no_nodes() if on_nodes else machine.why_no_control_plane():
        yield {}
        return
    with nodes_in(state, ROOT) if on_nodes else control_plane_in(state):
        yield {SHARED: str(state)}


class Runs:
    """pytest's runs of one tier, and what failed in them. `pytest`: what runs it."""

    def __init__(self, tier: Tier, times: int, extra: Sequence[str], pytest: Pytest | None = None) -> None:
        self.ended = Ended.PASSED
        self._pytest = pytest or run_pytest
        self._tier, self._times, self._extra = tier, times, extra
        self._printing = threading.Lock()
        self._again: list[Part] = []

    def workers(self, suite: str) -> tuple[str, ...]:
        """pytest's arguments for a suite whose tests several workers share, a file each."""
        number = _OTHER_WORKERS[self._tier].get(suite, WORKERS[self._tier]) * self._times
        if number == 1:
            return ()
        # Where a suite names no groups, its files are the groups (oarlock_local.pytest_plugin).
        return ("-n", str(number), "--dist", "loadgroup", "--no-loadscope-reorder")

    def run(
        self, part: Part, *arguments: str, environment: Mapping[str, str] | None = None, streams: bool = False
    ) -> None:
        """Run one part to its end, and print what it said: at once, or when it is over, because another lane prints, too."""
        name = part.suite + "".join(f", {argument}" for argument in arguments[:2] if argument in set(Lane))
        records = Path(os.environ[FOLDER]) / name.replace(", ", "-")
        if streams:
            self.say(f"== {name}")
        began = time.monotonic()
        given = ("--tier", self._tier, *self._extra, *arguments)
        code, said = self._pytest(part, given, {FOLDER: str(records), **(environment or {})}, streams=streams)
        self.say(f"{said}== {name} took {time.monotonic() - began:.0f} s")
        tests = report.read(records)
        failed = [test for test in tests if test.outcome == "failed"]
        if lost := report.held(records) - len(tests):
            self.fail(f"== {name}: {lost} tests never came to an end")
        elif any(test.phase == "teardown" for test in failed):
            self.fail(
                f"== {name}: what several tests share found a fault at its end, and no test alone will find it again"
            )
        elif code == 1 and failed:
            self._again.append(Part(part.suite, tuple(test.name.removeprefix(f"{part.suite}/") for test in failed)))
        elif code:
            self.fail(f"== {name}: pytest ended with {code}")

    def fail(self, why: str) -> None:
        """Note what no second try can mend."""
        self.say(why)
        self.ended = Ended.FAILED

    def try_again_alone(self) -> None:
        """Run what failed once more, alone, which tells whether others had a part in it."""
        for part in self._again:
            self.say(f"== {part.suite}: {len(part.files)} failed; once more, alone")
            code, _ = self._pytest(part, ("--tier", self._tier, *self._extra), {}, streams=True)
            if code:
                self.fail(f"== {part.suite}: failed alone, too")
            else:
                self.ended = worst((self.ended, Ended.ALONE))
                self.say(
                    "failed, and passed when run alone; what each waited for, or shared with others, is to be mended:"
                )
                self.say("\n".join(f"  {part.suite}: {name}" for name in part.files))

    def say(self, text: str) -> None:
        """Print lines, whole though another lane prints, too."""
        with self._printing:
            sys.stdout.write(text.rstrip("\n") + "\n")
            sys.stdout.flush()


def run_pytest(
    part: Part, arguments: Sequence[str], environment: Mapping[str, str], *, streams: bool
) -> tuple[int, str]:
    """Run a part in its own process."""
    # Chosen cases are the same each time where a change is judged; elsewhere each run looks for new ones.
    seed = ["--hypothesis-seed=1"] if os.environ.get("CI") else []
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *seed, *part.files, *arguments],
        cwd=ROOT / part.suite,
        # As `make` has it: many short processes import what nobody else would have compiled.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
        stdout=None if streams else subprocess.PIPE,
        stderr=None if streams else subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout or ""
