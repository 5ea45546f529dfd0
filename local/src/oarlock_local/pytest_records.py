"""What each test cost and how it ended, as lines of JSON; and a skip that nobody knows of is a failure where CI judges.

`tests/run` names a folder in OARLOCK_TEST_RECORDS; each process that runs tests writes a file of its own there. Nothing is
judged by these figures: reports read them (tests/tiers/report.py).

The first line says how many tests the process holds: who reads can tell that some of them never ran.

`cpu` is what this process, its children that ended and those that live used during the test, in seconds. What a fixture of a
whole session costs is its first test's; the part before the test itself is told apart as `setup`. Clusters that tests/run
starts for all of a lane, and their pods, are no descendants of the tests.
"""

import json
import os
import re
import resource
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from oarlock_local.pytest_tiers import tier_of

FOLDER = "OARLOCK_TEST_RECORDS"
KNOWN_SKIPS = Path("tests", "tiers", "skips.txt")
"""Below the repository's root. A line each: what the test's id contains, a tab, what the reason contains."""
_SHORT = 0.2
"""Seconds. Descendants that live are not looked at for a shorter test: a look costs some milliseconds."""
_LOCKED = "uv.lock"
"""What lies at the repository's root alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Record where a folder is named, and where tests are run: not in the process that only hands them out."""
    if config.option.collectonly or getattr(config.option, "dist", "no") != "no":
        return
    root = next((folder for folder in (config.rootpath, *config.rootpath.parents) if (folder / _LOCKED).exists()), None)
    if root is None:
        return
    if os.environ.get("CI"):
        config.pluginmanager.register(UnknownSkips(root), "oarlock-skips")
    if folder := os.environ.get(FOLDER):
        config.pluginmanager.register(Recorder(Path(folder), root), "oarlock-records")


class UnknownSkips:
    """Fails a test that is skipped for a reason that is not on the list."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = list(known_skips(root))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say what is not on the list."""
        report = yield
        if report.skipped and not hasattr(report, "wasxfail"):
            name, reason = name_of(item, self._root), _reason(report)
            if not any(part in name and said in reason for part, said in self._known):
                report.outcome = "failed"
                report.longrepr = f"skipped, and {KNOWN_SKIPS} does not know of it: {reason}"
        return report


class Recorder:
    """Writes the lines of one process."""

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._file = (folder / f"{Path.cwd().name}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._used = _own()
        self._living = 0.0
        """What descendants had used when they were last looked at."""
        self._phases: dict[str, pytest.TestReport] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say how many tests there will be; each worker of several holds all of them, and runs its share."""
        self._tell({"holds": len(session.items)})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Time the whole of a test, its fixtures included."""
        self._phases = {}
        began = time.monotonic()
        result = yield
        seconds = time.monotonic() - began
        # What a child used that has been waited for was counted while it lived: only the sum of both is no less than before.
        if seconds >= _SHORT:
            self._living = _of_descendants()
        used = max(_own() + self._living, self._used)
        self._write(item, seconds, used - self._used)
        self._used = used
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep how each phase ended."""
        report = yield
        self._phases[report.when or "call"] = report
        return report

    def _write(self, item: pytest.Item, seconds: float, cpu: float) -> None:
        # A test that was skipped may be the one at which a fixture of others fails to end.
        unlike = [report for report in self._phases.values() if report.outcome != "passed"]
        ended = min(unlike, key=lambda report: report.outcome != "failed", default=None)
        line: dict[str, object] = {
            "test": name_of(item, self._root),
            "tier": tier_of(item),
            "outcome": ended.outcome if ended else "passed",
            "seconds": round(seconds, 3),
            "setup": round(self._phases["setup"].duration, 3) if "setup" in self._phases else 0.0,
            "cpu": round(cpu, 3),
        }
        if ended and ended.outcome == "skipped":
            line["reason"] = _reason(ended)
        elif ended:
            line["phase"] = ended.when
        self._tell(line)

    def _tell(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def name_of(item: pytest.Item, root: Path) -> str:
    """A test by its file below the root; `nodeid` begins elsewhere in some suites, and names a worker's group."""
    path = item.path.relative_to(root) if item.path.is_relative_to(root) else item.path
    within = [node.name for node in item.listchain() if isinstance(node, pytest.Class | pytest.Item)]
    return "::".join((path.as_posix(), *within))


def known_skips(root: Path) -> Iterator[tuple[str, str]]:
    """What is in a test's id, and in the reason, of each skip that CI accepts."""
    for line in (root / KNOWN_SKIPS).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            part, _, reason = line.partition("\t")
            yield part, reason


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", text)


def _own() -> float:
    """CPU seconds of this process and of its children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _of_descendants() -> float:
    """CPU seconds of this process's descendants that live, and of those that they have waited for."""
    import psutil  # noqa: PLC0415 - of the development environment: who uses the fixtures elsewhere may not have it

    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total
