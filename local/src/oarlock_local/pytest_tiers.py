"""Which of this repository's tests a run holds: pytest loads this beside the fixtures (pytest_plugin).

There are two tiers. `quick` is `make test`: all that needs no real nodes and is not marked `deep`, and the smokes, a test on
real nodes for each promise of the README. `deep` is the rest; `make test-all` runs both. pytest alone, without `--tier`, runs
what it is told to.
"""

import os
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


class Tier(StrEnum):
    """What `--tier` takes."""

    QUICK = "quick"
    DEEP = "deep"
    ALL = "all"


class Lane(StrEnum):
    """What `--lane` takes: parts of a tier that run beside each other, because two of them mostly wait."""

    PURE = "pure"
    CONTROL_PLANE = "control-plane"
    NODES = "nodes"


QUICK_EXAMPLES = 25

_MARKERS = (
    "deep: of `make test-all` alone: what `make test` promises already, at more values, on more families, or for minutes",
    "smoke(promise): the test on real nodes that stands for a promise of the README (tests/tiers/promises.py)",
    "nodes: needs real local nodes (root, Linux); skipped with its reason elsewhere",
    "cluster: needs the local control plane",
    "gpu: needs a CUDA GPU; skipped with its reason where there is none",
)
_tier = Tier.ALL


def examples(count: int) -> int:
    """How many cases a property test draws: `count`, and a sample of them in the quick tier."""
    return min(count, QUICK_EXAMPLES) if _tier is Tier.QUICK else count


def quick_first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values of a parametrized test: the quick tier takes the first ones, the deep tier the rest."""
    return [value if number < count else _deep(value) for number, value in enumerate(values)]


def _deep(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.deep], id=value.id)
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.deep)


def needs_nodes(item: pytest.Item) -> bool:
    """Whether a test needs real local nodes."""
    return item.get_closest_marker("nodes") is not None or "local_cluster" in getattr(item, "fixturenames", ())


def needs_control_plane(item: pytest.Item) -> bool:
    """Whether a test needs a control plane without nodes."""
    return item.get_closest_marker("cluster") is not None or "control_plane" in getattr(item, "fixturenames", ())


def tier_of(item: pytest.Item) -> Tier:
    """The tier that a test belongs to."""
    if item.get_closest_marker("smoke"):
        return Tier.QUICK
    return Tier.DEEP if item.get_closest_marker("deep") or needs_nodes(item) else Tier.QUICK


def lane_of(item: pytest.Item) -> Lane:
    """The lane that a test runs in, within its tier."""
    if needs_nodes(item):
        return Lane.NODES
    return Lane.CONTROL_PLANE if needs_control_plane(item) else Lane.PURE


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier` and `--lane`."""
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=list(Tier), default=Tier.ALL, help="of which tier tests are run (default: all)")
    group.addoption(
        "--lane",
        choices=list(Lane),
        action="append",
        default=[],
        help="run the tests without a cluster alone, or those on one kind of it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and settle the tier before any test is imported: `examples` is asked then."""
    global _tier  # noqa: PLW0603 - pytest has one configuration a process, and decorators have no other way to it
    _tier = Tier(config.getoption("--tier"))
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(Lost(), "oarlock-lost")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of another tier or lane."""
    tier, lanes = config.getoption("--tier"), config.getoption("--lane")

    def is_wanted(item: pytest.Item) -> bool:
        return tier in (Tier.ALL, tier_of(item)) and (not lanes or lane_of(item) in lanes)

    wanted = [item for item in items if is_wanted(item)]
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted


class Lost:
    """Fails a run in which tests were lost that no report names: their module broke, or the worker that had them died."""

    def __init__(self) -> None:
        self._anything = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that can't be imported, or is skipped as a whole where CI judges, has tests that nobody counts."""
        self._anything |= report.failed or (report.skipped and bool(os.environ.get("CI")))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self) -> None:
        """The test that a worker died of has no report of its own process."""
        self._anything = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """A worker that could not even begin."""
        self._anything |= error is not None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Tell it by a code that no failed test has. That a part of a suite has no test of a tier or lane is no failure."""
        chosen = session.config.getoption("--tier") != Tier.ALL or session.config.getoption("--lane")
        if self._anything:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and chosen:
            session.exitstatus = pytest.ExitCode.OK
