"""A build says about how long the rest of it takes, on a quiet machine and on a busy one."""

import io
import re
from collections.abc import Callable
from itertools import groupby

import pytest

from oarlock_local.binaries import Part, node_parts
from oarlock_local.build_progress import CPU_SECONDS, Progress, seconds_left

NAMES = ("kwok", "containerd", "helm")
KWOK, CONTAINERD, HELM = (CPU_SECONDS[name] for name in NAMES)
PARTS = node_parts(seccomp=True)


@pytest.mark.parametrize(
    ("finished", "done", "running", "pace", "left"),
    [
        pytest.param(0, 0, 0, 2, (KWOK + CONTAINERD + HELM) / 2, id="at first: what it takes on two quiet cores"),
        pytest.param(0, 0, 10, 2, (KWOK - 10 + CONTAINERD + HELM) / 2, id="what has been compiled is done"),
        pytest.param(
            0, 0, 10, 0.5, (KWOK - 10 + CONTAINERD + HELM) * 2, id="a quarter of the pace: four times as long"
        ),
        pytest.param(1, 3 * KWOK, 6, 2, (3 * (CONTAINERD + HELM) - 6) / 2, id="slow cores compute longer for all"),
        pytest.param(2, KWOK + CONTAINERD, HELM + 40, 2, 10, id="longer than expected: half of the excess to come"),
        pytest.param(0, 0, 2 * KWOK, 2, (KWOK + 5 * (CONTAINERD + HELM)) / 4, id="and more for all that follows"),
    ],
)
def test_the_rest_is_told_by_what_was_computed_and_by_the_pace(
    finished: int, done: float, running: float, pace: float, left: float
) -> None:
    assert seconds_left(NAMES, finished, done=done, running=running, pace=pace) == pytest.approx(left)


def test_a_build_that_stands_still_is_no_error() -> None:
    assert seconds_left(NAMES, 0, done=0, running=10, pace=0) > 60 * 60


def test_what_takes_longest_of_a_cluster_has_its_time() -> None:
    """Else the rest would be told too short."""
    assert {"kubernetes", "containerd"} <= {part.binary for part in PARTS} & {*CPU_SECONDS}


def log_of_a_build(cores: Callable[[float], float], *, work: float = 1) -> list[tuple[float, str]]:
    """What a log says while a cluster's programs are built: before each line, how many seconds are really left.

    The compilers are given so many `cores` at each time, and compute for `work` times the usual CPU seconds.
    """
    now, log, out = 0.0, [], io.StringIO()
    progress = Progress(PARTS, out, cores=2, clock=lambda: now)
    for part in PARTS:
        progress.begin()
        computed = 0.0
        while computed < CPU_SECONDS.get(part.binary, 10) * work:
            now += 1
            computed += cores(now)
            progress.tell(computed)
            log += [(now, line) for line in out.getvalue().splitlines() if line.endswith(("left", "cores"))]
            out.seek(0)
            out.truncate()
        progress.done()
    return [(now - then, line) for then, line in log]


def told(line: str) -> str:
    """What a line says is left."""
    found = re.search(r"((about|less than) .+) left", line)
    assert found
    return found[1]


def minutes(line: str) -> float:
    """The same as a number."""
    return {"less than a minute": 0.5, "about a minute": 1}.get(told(line)) or float(told(line).split()[1])


@pytest.mark.parametrize(
    ("cores", "work", "lines", "off"),
    [
        pytest.param(lambda _: 1.8, 1, 0, 0.6, id="a quiet machine"),
        pytest.param(lambda _: 0.6, 1, 1, 0.6, id="a third of its pace"),
        pytest.param(lambda _: 0.2, 1, 1, 0.6, id="a ninth of its pace"),
        pytest.param(lambda at: 1.8 if at < 180 else 0.6, 1, 7, 0.6, id="others come after three minutes"),
        pytest.param(lambda at: 0.6 if at < 180 else 1.8, 1, 7, 0.6, id="others leave after three minutes"),
        pytest.param(lambda at: 0.3 if at % 60 < 30 else 1.5, 1, 1, 0.7, id="others come and go"),
        pytest.param(lambda _: 8, 1, 1, 0.6, id="many cores"),
        pytest.param(lambda _: 1.8, 0.7, 0, 2.4, id="cores that compute faster"),
        pytest.param(lambda _: 1.8, 1.3, 0, 2.6, id="cores that compute more slowly"),
    ],
)
def test_a_log_tells_what_is_left_and_never_the_same_for_long(
    cores: Callable[[float], float], work: float, lines: int, off: float
) -> None:
    """A line comes every half minute; those after the first few are no more than `off` minutes off."""
    log = log_of_a_build(cores, work=work)
    assert [minutes(line) for _, line in log[lines:]] == pytest.approx([left / 60 for left, _ in log[lines:]], abs=off)
    assert max(len([*same]) for _, same in groupby(told(line) for _, line in log)) <= 4


def test_a_line_says_that_the_machine_is_busy_while_it_is() -> None:
    log = [line for _, line in log_of_a_build(lambda at: 0.6 if at <= 270 else 1.8)]
    assert log[0] == " tools      1/11 kubernetes  0:30, about 9 min left"
    assert log[8] == " tools      1/11 kubernetes  4:30, busy: about 16 min left at 0.6 of 2 cores"
    assert not any("busy" in line for line in log[10:])


def test_while_sources_are_fetched_no_machine_looks_busy() -> None:
    now, out = 0.0, io.StringIO()
    progress = Progress([Part("helm", "helm")], out, cores=2, clock=lambda: now)
    progress.begin()
    now = 301
    progress.tell(0)
    now = 331
    progress.tell(60)
    progress.done()
    assert out.getvalue().splitlines() == [
        " tools      1/1 helm  5:01, getting its sources, then about 2 min",
        " tools      1/1 helm  5:31, about a minute left",
        " tools      1/1 helm  done, 5:31 in all",
    ]


def test_a_terminals_line_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    progress = Progress([Part("kubernetes", "kubernetes")], out, cores=2)
    progress.begin()
    progress.tell(1)
    assert out.getvalue() == "\r\033[K" + " tools      1/1 kubernetes  0:00, about 4 min left"[:39]
