"""Why a rank is slow, by what the kernel and NVML count: each cause is named, and nothing is made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.agent.slow.counts import Counts, counts
from oarlock_trainer.agent.slow.why import why
from oarlock_trainer.health.pace import GpuPace, parse_pace

if TYPE_CHECKING:
    from pathlib import Path

QUIET = {"waited": 0.1, "periods": (100, 1), "stalled": 0.2}
FAST = tuple(
    GpuPace(index=index, clock=1980 - index, highest_clock=1980, slowed_by=("sw_power_cap",)) for index in range(4)
)


def said(*, pace: tuple[GpuPace, ...] = FAST, gpu: int | None = 3, **after: Any) -> str:
    before = Counts(at=100.0, waited=5.0, periods=(1000, 10), stalled=3.0)
    grown = {
        "waited": 5.0 + QUIET["waited"],  # type: ignore[operator]
        "periods": (1100, 11),
        "stalled": 3.0 + QUIET["stalled"],  # type: ignore[operator]
    } | after
    return why(before, Counts(at=110.0, **grown), pace, gpu=gpu)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"waited": 9.5}, "CPU share: for 45% of the time it was ready to run and had no processor"),
        ({"periods": (1100, 50)}, "CPU share: its pod's CPU limit is used up in 40% of its periods"),
        ({"stalled": 6.0}, "storage: for 30% of the time processes of its pod waited for it"),
        ({"stalled": 6.0, "of_the_node": True}, "storage: for 30% of the time processes of its node waited for it"),
    ],
)
def test_what_it_waits_for_is_named_with_its_share(after: dict[str, Any], words: str) -> None:
    assert said(**after) == words


def test_several_causes_are_all_told() -> None:
    assert said(waited=9.5, periods=(1100, 50), stalled=6.0) == (
        "CPU share: for 45% of the time it was ready to run and had no processor, and its pod's CPU limit is used up in 40% "
        "of its periods; storage: for 30% of the time processes of its pod waited for it"
    )


def test_a_gpu_whose_clock_is_below_the_others_is_named_with_nvmls_reasons() -> None:
    slow = GpuPace(index=3, clock=1155, highest_clock=1980, slowed_by=("sw_power_cap", "sw_thermal_slowdown"))
    assert said(pace=(*FAST[:3], slow)) == (
        "GPU clocks: GPU 3 runs at 1155 MHz, the others of its pod at 1979 (sw_power_cap, sw_thermal_slowdown)"
    )


def test_a_gpu_alone_is_held_against_its_own_highest_clock_and_only_where_nvml_names_a_brake() -> None:
    alone = GpuPace(index=0, clock=1500, highest_clock=1980, slowed_by=("hw_thermal_slowdown",))
    assert said(pace=(alone,), gpu=0) == "GPU clocks: GPU 0 runs at 1500 MHz of 1980 (hw_thermal_slowdown)"
    capped = GpuPace(index=0, clock=1500, highest_clock=1980, slowed_by=("sw_power_cap",))
    assert said(pace=(capped,), gpu=0).startswith("neither its GPU's clocks"), "every busy GPU runs at its power cap"


@pytest.mark.parametrize(
    ("pace", "gpu", "beginning"),
    [
        (FAST, 3, "neither its GPU's clocks, its share of the processors nor storage shows why"),
        ((), 3, "neither its share of the processors nor storage shows why, and nobody sees its GPU's clocks"),
        ((), None, "neither its share of the processors nor storage shows why: look"),
    ],
)
def test_where_nothing_shows_it_says_what_was_looked_at(
    pace: tuple[GpuPace, ...], gpu: int | None, beginning: str
) -> None:
    assert said(pace=pace, gpu=gpu).startswith(beginning)
    nothing = Counts(at=1.0)
    assert why(nothing, Counts(at=11.0), pace, gpu=gpu).startswith(beginning), (
        "what the kernel does not say is no cause"
    )


def test_the_kernels_files_are_read_and_one_that_is_missing_or_strange_is_none(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "group"
    (proc / "7").mkdir(parents=True)
    (proc / "pressure").mkdir()
    group.mkdir()
    bare = counts(7, proc=proc, group=group)
    assert (bare.waited, bare.periods, bare.stalled) == (None, None, None)
    (proc / "7/schedstat").write_text("8098671 2500000000 15\n")
    (proc / "pressure/io").write_text("some avg10=0.48 avg60=0.82 avg300=0.49 total=4000000\nfull avg10=0.04 total=2\n")
    (group / "cpu.stat").write_text("usage_usec 5\nnr_periods 600\nnr_throttled 250\nthrottled_usec 9\n")
    read = counts(7, proc=proc, group=group)
    assert (read.waited, read.periods, read.stalled, read.of_the_node) == (2.5, (600, 250), 4.0, True)
    (group / "io.pressure").write_text("some avg10=0 avg60=0 avg300=0 total=1000000\n")
    read = counts(None, proc=proc, group=group)
    assert (read.waited, read.stalled, read.of_the_node) == (None, 1.0, False)


def test_what_a_monitor_says_of_clocks_reads_as_it_was_and_strange_values_are_none() -> None:
    assert [parse_pace(json.loads(json.dumps(one.to_fields()))) for one in FAST] == list(FAST)
    assert parse_pace({"index": 1, "clock": "fast", "slowed_by": 7}) == GpuPace(index=1)
    assert parse_pace({"clock": 3}) is None
