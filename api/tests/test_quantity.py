"""Amounts in Kubernetes' notation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.primitives import QUANTITY_PATTERN
from oarlock_api.quantity import LARGEST, whole_bytes


@pytest.mark.parametrize(
    ("written", "expected"),
    [("200Gi", 200 * 2**30), ("1k", 1000), ("1Ki", 1024), ("1.5M", 1_500_000), ("1e3", 1000), ("7", 7), ("1500m", 2)],
)
def test_a_quantity_is_a_number_of_bytes_rounded_up(written: str, expected: int) -> None:
    assert whole_bytes(written) == expected


@given(st.from_regex(QUANTITY_PATTERN, fullmatch=True).filter(lambda written: len(written) <= 32))
def test_whatever_the_schema_accepts_can_be_read_and_is_bounded(written: str) -> None:
    assert 0 <= whole_bytes(written) <= LARGEST


@pytest.mark.parametrize("written", ["", "Gi", "1GiB", "-1", "1 Gi"])
def test_anything_else_is_told(written: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        whole_bytes(written)
