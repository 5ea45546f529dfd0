"""Shuffled passes that are computed, not stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.data.permutation import round_keys, shuffled

LENGTHS = st.one_of(st.integers(1, 40), st.integers(1000, 1100), st.integers(1, 5000))


def whole_pass(number: int, length: int, seed: int = 1) -> np.ndarray:
    return shuffled(np.arange(length), np.full(length, number), length=length, keys=round_keys(seed))


@settings(max_examples=examples(80), deadline=None)
@given(LENGTHS, st.integers(0, 2**40), st.integers(0, 2**53))
def test_every_pass_holds_each_number_once(length: int, number: int, seed: int) -> None:
    assert sorted(whole_pass(number, length, seed)) == list(range(length))


@settings(max_examples=examples(40), deadline=None)
@given(LENGTHS, st.data())
def test_an_entry_is_the_same_alone_and_among_others(length: int, data: st.DataObject) -> None:
    entries = np.array(data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=20)))
    passes = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(entries), max_size=len(entries))))
    together = shuffled(entries, passes, length=length, keys=round_keys(7))
    alone = [
        int(shuffled(entries[i : i + 1], passes[i : i + 1], length=length, keys=round_keys(7))[0])
        for i in range(len(entries))
    ]
    assert together.tolist() == alone


@pytest.mark.parametrize("length", [10, 3000])
def test_passes_and_seeds_give_orders_of_their_own(length: int) -> None:
    orders = {tuple(whole_pass(number, length, seed)) for number in range(3) for seed in (1, 2)}
    assert len(orders) == 6


@pytest.mark.parametrize("length", [2, 3, 7, 24, 1024, 1025, 3000])
def test_every_number_comes_to_every_place_equally_often(length: int) -> None:
    """Chi-square over the places of all numbers: its mean per degree of freedom is 1, its deviation small."""
    passes = max(400_000 // length, 200)
    entries, turns = np.tile(np.arange(length), passes), np.repeat(np.arange(passes), length)
    found = shuffled(entries, turns, length=length, keys=round_keys(3))
    groups = min(length, 24)
    counts = np.zeros((groups, groups))
    np.add.at(counts, (entries * groups // length, found * groups // length), 1)
    sizes = np.bincount(np.arange(length) * groups // length)
    expected = np.outer(sizes, sizes) / length * passes
    freedom = (groups - 1) ** 2
    assert ((counts - expected) ** 2 / expected).sum() / freedom < 1 + 6 * np.sqrt(2 / freedom)


def test_ten_million_entries_cost_no_more_memory_than_ten() -> None:
    entries = np.array([0, 5_000_000, 9_999_999])
    found = shuffled(entries, np.zeros(3, dtype=int), length=10_000_000, keys=round_keys(1))
    assert len(set(found.tolist())) == 3
    assert all(0 <= value < 10_000_000 for value in found)
