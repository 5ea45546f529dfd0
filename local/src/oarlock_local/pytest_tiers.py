"""Which of this repository's tests a run holds: pytest loads this beside the fixtures (pytest_plugin).

There are two tiers. `quick` is `make test`: all that needs no real nodes and is not marked `deep`, and the smokes, a test on
real nodes for each promise of the README. `deep` is the rest; `make test-all` runs both. pytest alone, without `--tier`, runs
what it is told to.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pytest


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


NEEDS_NODES = {"nodes", "local_cluster"}
NEEDS_CONTROL_PLANE = {"cluster", "control_plane"}
"""Marks and fixtures of tests against a control plane without nodes."""
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
    return [
        value
        if number < count
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.deep)
        for number, value in enumerate(values)
    ]


def needs(item: pytest.Item) -> set[str]:
    """The marks and fixtures of a test, by name."""
    return {mark.name for mark in item.iter_markers()} | set(getattr(item, "fixturenames", ()))


def tier_of(item: pytest.Item) -> Tier:
    """The tier that a test belongs to."""
    if item.get_closest_marker("smoke"):
        return Tier.QUICK
    return Tier.DEEP if needs(item) & {"deep", *NEEDS_NODES} else Tier.QUICK


def lane_of(item: pytest.Item) -> Lane:
    """The lane that a test runs in, within its tier."""
    needed = needs(item)
    if needed & NEEDS_NODES:
        return Lane.NODES
    return Lane.CONTROL_PLANE if needed & NEEDS_CONTROL_PLANE else Lane.PURE


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier` and `--lane`."""
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=list(Tier), default=Tier.ALL, help="of which tier tests are run (default: all)")
    group.addoption(
        "--lane", choices=list(Lane), help="run the tests without a cluster alone, or those on one kind of it"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and settle the tier before any test is imported: `examples` is asked then."""
    global _tier  # noqa: PLW0603 - pytest has one configuration a process, and decorators have no other way to it
    _tier = Tier(config.getoption("--tier"))
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of another tier or lane."""
    tier, lane = config.getoption("--tier"), config.getoption("--lane")

    def is_wanted(item: pytest.Item) -> bool:
        return tier in (Tier.ALL, tier_of(item)) and lane in (None, lane_of(item))

    wanted = [item for item in items if is_wanted(item)]
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part of a suite in which a tier or a lane has no test is no failure."""
    chosen = session.config.getoption("--tier") != Tier.ALL or session.config.getoption("--lane")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and chosen:
        session.exitstatus = pytest.ExitCode.OK
