"""A pod whose CPU limit holds it back says so, by the kernel's counts of the last minute."""

from __future__ import annotations

from pathlib import Path

from oarlock_trainer.agent.cpu_throttling import EVERY_SECONDS, CpuThrottling
from oarlock_trainer.runtime import cgroup


def test_what_the_limit_takes_is_told_by_the_minute_and_over_when_it_is_over() -> None:
    counts = iter([(1000, 900), (1600, 1150), (2200, 1170), None])
    throttling = CpuThrottling(lambda: next(counts))
    told = [throttling.words(look * EVERY_SECONDS / 2) for look in range(7)]
    assert told[:2] == ["", ""], "what was before is none of this minute's"
    assert told[2] == told[3] == "its CPU limit is used up in about 40% of its periods"
    assert told[4:] == ["", "", ""]


def test_the_kernel_s_counts_are_read_where_there_is_a_limit(tmp_path: Path) -> None:
    assert cgroup.cpu_periods(tmp_path) is None
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nnr_periods 600\nnr_throttled 250\nthrottled_usec 9\n")
    assert cgroup.cpu_periods(tmp_path) == (600, 250)
