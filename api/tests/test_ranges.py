"""Numbers as people write many of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.ranges import as_ranges, from_ranges


def test_runs_are_written_by_their_ends() -> None:
    assert as_ranges([8, 0, 2, 1, 3]) == "0-3,8"
    assert as_ranges([4], separator=", ") == "4"
    assert as_ranges([]) == ""


@given(st.sets(st.integers(0, 1200)))
def test_ranks_are_read_as_they_were_written(ranks: set[int]) -> None:
    assert from_ranges(as_ranges(ranks)) == ranks
