"""Coefficients are found exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.plan.counting.scaling import Coefficients, Tokens, at, by_pair, by_token, fitted

POINTS = [(1024, 256), (4096, 256), (1024, 512), (4096, 512)]
WHOLE = st.integers(-(10**15), 10**15)


@given(wanted=st.tuples(WHOLE, WHOLE, WHOLE), terms=st.sampled_from([by_token, by_pair]))
def test_the_coefficients_that_made_the_counts_are_found(
    wanted: Coefficients, terms: Callable[[Tokens], Coefficients]
) -> None:
    assert fitted({one: at(wanted, terms(one)) for one in POINTS}, terms) == wanted


def test_what_grows_otherwise_is_refused() -> None:
    pairs = {one: at((1, 2, 1), by_pair(one)) for one in POINTS}
    with pytest.raises(ValueError, match=r"at \(4096, 512\) tokens of image and text"):
        fitted(pairs, by_token)


def test_coefficients_that_are_not_whole_are_refused() -> None:
    halves = {(1024, 256): 0, (4096, 256): 1, (1024, 512): 0, (4096, 512): 1}
    with pytest.raises(ValueError, match="tokens of image and text"):
        fitted(halves, by_token)


def test_too_like_numbers_of_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="do not tell the coefficients apart"):
        fitted({(1, 1): 1, (2, 1): 2, (3, 1): 3}, by_token)
