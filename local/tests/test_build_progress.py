"""A build says about how long the rest of it takes."""

import io

import pytest

from oarlock_local.binaries import Part, node_parts
from oarlock_local.build_progress import SECONDS, Progress, seconds_left

NAMES = ("kwok", "containerd", "helm")
KWOK, CONTAINERD, HELM = (SECONDS[name] for name in NAMES)


def test_at_first_the_rest_takes_what_it_takes_on_two_quiet_cores() -> None:
    assert seconds_left(NAMES, 0, done=0, running=10) == KWOK - 10 + CONTAINERD + HELM


def test_a_machine_half_as_fast_needs_twice_as_long() -> None:
    assert seconds_left(NAMES, 1, done=2 * KWOK, running=6) == pytest.approx(2 * (CONTAINERD + HELM) - 6)


def test_a_part_that_takes_longer_than_usual_is_nearly_done() -> None:
    assert seconds_left(NAMES, 2, done=KWOK + CONTAINERD, running=10 * HELM) == 0


def test_what_takes_longest_of_a_cluster_has_its_time() -> None:
    """Else the rest would be told too short."""
    assert {"kubernetes", "containerd"} <= {part.binary for part in node_parts(seccomp=True)} & {*SECONDS}


def test_a_log_is_told_the_part_how_many_there_are_and_what_is_left() -> None:
    out = io.StringIO()
    progress = Progress([Part("kwok", "kwok"), Part("helm", "helm")], out)
    progress.begin()
    progress.tell()
    progress.done()
    assert out.getvalue() == (" tools      1/2 kwok  0:00, about 2 min left\n tools      1/2 kwok  done, 0:00 in all\n")
