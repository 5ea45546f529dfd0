"""The report takes no memory that its container does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.layout import REPORT_PAGE
from oarlock_trainer.agent.report.report_page import RUNNING
from oarlock_trainer.agent.report.room import bytes_left
from oarlock_trainer.agent.report.write import MEMORY_BYTES, write_within

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("limit", "taken", "dropped_at_once", "left"),
    [
        ("1000\n", "900\n", 0, 100),
        ("1000\n", "1000\n", 400, 400),
        ("1000\n", "1100\n", 0, 0),
        ("max\n", "900\n", 0, None),
    ],
)
def test_what_is_left_of_a_limit_counts_pages_of_files_that_the_kernel_drops_at_once(
    tmp_path: Path, limit: str, taken: str, dropped_at_once: int, left: int | None
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(taken)
    (tmp_path / "memory.stat").write_text(f"anon 500\ninactive_file {dropped_at_once}\n")
    assert bytes_left(tmp_path) == left


def test_where_nobody_says_how_much_is_left_no_number_is_made_up(tmp_path: Path) -> None:
    assert bytes_left(tmp_path) is None


def test_a_report_for_which_there_is_no_memory_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".oarlock").mkdir()
    write_within(tmp_path, phase=RUNNING, left=MEMORY_BYTES - 1)
    assert not (tmp_path / REPORT_PAGE).exists()
    assert "the report is not written: the container has 383 MiB" in caplog.text
    for left in (MEMORY_BYTES, None):
        write_within(tmp_path, phase=RUNNING, left=left)
        assert (tmp_path / REPORT_PAGE).exists()
        (tmp_path / REPORT_PAGE).unlink()
