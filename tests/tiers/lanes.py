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
from pathlib import Path

from oarlock_local import machine
from oarlock_local.errors import LocalError
from oarlock_local.pytest_plugin import SHARED, control_plane_in, nodes_in
from oarlock_local.pytest_records import FOLDER
from oarlock_local.pytest_tiers import Lane, Tier
from tests.tiers import report

ROOT = Path(__file__).resolve().parents[2]
ON = {Lane.CONTROL_PLANE: ("api", "operator", "tests", "local"), Lane.NODES: ("tests",)}
"""Suites with tests of the quick tier on a cluster, in the order in which they run: who changes the cluster is last."""
WORKERS = {Tier.QUICK: 1, Tier.DEEP: 2}
_OF_MANY = {Tier.QUICK: {"trainer": 2}, Tier.DEEP: {"trainer": 3, "local": 3}}
"""Workers where it is another number: tests of these suites wait for processes more than they compute."""
_SHORT_SUITES_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Part:
    """What is run of one suite: all of it, or these files, by their paths below the suite's folder."""

    suite: str
    files: tuple[str, ...] = ()


def make_what_tests_need(suites: Iterable[str]) -> None:
    """Build the local cluster's programs and install the browser, where they are not there.

    What is made for the first time takes longer than a test may. What can't be made is told by the tests that need it.
    """
    subprocess.run([Path(sys.executable).with_name("oarlock-local"), "build"], stdout=subprocess.DEVNULL, check=False)
    if {"client", "local", "tests"}.intersection(suites):
        subprocess.run(["make", "--silent", "browser"], cwd=ROOT, check=False)


def run(
    parts: Sequence[Part], tier: Tier, *, times: int = 1, minutes: float | None = None, extra: Sequence[str] = ()
) -> bool:
    """Run the parts; True where all passed.

    `times`: with so many times the workers. `minutes`: after so many, no further suite of the deep tier begins, and it is
    named. `extra` goes to pytest.
    """
    began = time.monotonic()
    runs = _Runs(tier, times, extra)
    if tier is Tier.QUICK:
        with (
            tempfile.TemporaryDirectory(prefix="oarlock-tests-") as state,
            ThreadPoolExecutor() as pool,
            ThreadPoolExecutor(_SHORT_SUITES_AT_ONCE) as short,
        ):
            lanes = [pool.submit(_on_a_cluster, runs, lane, parts, Path(state)) for lane in ON]
            for part in parts:
                threads = pool if part.suite in _OF_MANY[tier] else short
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
    return not runs.failed


def pure(suite: str) -> list[str]:
    """pytest's arguments for the tests of a suite without a cluster, and for those on one that no lane of it has."""
    lanes = [Lane.PURE, *(lane for lane, suites in ON.items() if suite not in suites)]
    return [argument for lane in lanes for argument in ("--lane", lane)]


def _on_a_cluster(runs: _Runs, lane: Lane, parts: Sequence[Part], state: Path) -> None:
    wanted = [part for suite in ON[lane] for part in parts if part.suite == suite]
    if not wanted:
        return
    try:
        with _cluster(lane, state) as environment:
            for part in wanted:
                runs.run(part, "--lane", lane, environment=environment)
    except LocalError as error:
        runs.fail(f"the cluster of the lane {lane} did not start: {error}")


@contextmanager
def _cluster(lane: Lane, state: Path) -> Iterator[dict[str, str]]:
    """Keep a lane's cluster for its tests; none where this machine can't run one, which the tests then tell."""
    on_nodes = lane is Lane.NODES
    if machine.why_no_nodes() if on_nodes else machine.why_no_control_plane():
        yield {}
        return
    with nodes_in(state, ROOT) if on_nodes else control_plane_in(state):
        yield {SHARED: str(state)}


class _Runs:
    """pytest's runs of one tier, and what failed in them."""

    def __init__(self, tier: Tier, times: int, extra: Sequence[str]) -> None:
        self.failed = False
        self._tier, self._times, self._extra = tier, times, extra
        self._printing = threading.Lock()
        self._again: list[Part] = []

    def workers(self, suite: str) -> tuple[str, ...]:
        """pytest's arguments for a suite whose tests several workers share, a file each."""
        number = _OF_MANY[self._tier].get(suite, WORKERS[self._tier]) * self._times
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
        code, said = self._pytest(
            part, *self._extra, *arguments, environment={FOLDER: str(records), **(environment or {})}, streams=streams
        )
        self.say(f"{said}== {name} took {time.monotonic() - began:.0f} s")
        if code == 1 and (names := [test.name for test in report.read(records) if test.outcome == "failed"]):
            self._again.append(Part(part.suite, tuple(name.removeprefix(f"{part.suite}/") for name in names)))
        elif code:
            self.failed = True

    def fail(self, why: str) -> None:
        """Note what is no test's failure."""
        self.say(why)
        self.failed = True

    def try_again_alone(self) -> None:
        """What failed beside others may have waited for them: it has one more try alone, and is named in any case."""
        for part in self._again:
            self.say(f"== {part.suite}: {len(part.files)} failed; once more, alone")
            code, _ = self._pytest(part, streams=True)
            if code:
                self.failed = True
            else:
                self.say("passed only when run alone; each wants a look:")
                self.say("\n".join(f"  {part.suite}: {name}" for name in part.files))

    def _pytest(
        self, part: Part, *arguments: str, environment: Mapping[str, str] | None = None, streams: bool
    ) -> tuple[int, str]:
        # Chosen cases are the same each time where a change is judged; elsewhere each run looks for new ones.
        seed = ["--hypothesis-seed=1"] if os.environ.get("CI") else []
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tier", self._tier, *seed, *part.files, *arguments],
            cwd=ROOT / part.suite,
            # As `make` has it: many short processes import what nobody else would have compiled.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
            stdout=None if streams else subprocess.PIPE,
            stderr=None if streams else subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout or ""

    def say(self, text: str) -> None:
        """Print lines, whole though another lane prints, too."""
        with self._printing:
            sys.stdout.write(text.rstrip("\n") + "\n")
            sys.stdout.flush()
