"""The order of samples: disjoint, complete, without ranks, and one integer to resume."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.data.sampler import Order, Origin, Stream, carried_over


@st.composite
def streams(draw: st.DrawFn, effective: int) -> list[Stream]:
    pictures = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    return [Stream(count, count * draw(st.integers(-(-effective // count), 12 + effective))) for count in pictures]


def taken(order: Order, bucket: int, steps: range) -> list[int]:
    drawn = (order.at(step) for step in steps)
    return [int(picture) for one in drawn if one.bucket == bucket for picture in one.pictures]


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 16), st.integers(0, 2**53))
def test_every_pass_over_a_bucket_takes_each_picture_exactly_once(
    data: st.DataObject, effective: int, seed: int
) -> None:
    buckets = data.draw(streams(effective))
    order = Order(buckets, seed=seed, effective=effective)
    steps = range(order.steps_in(3))
    for bucket, stream in enumerate(buckets):
        pictures = taken(order, bucket, steps)
        for start in range(0, len(pictures) - stream.pictures + 1, stream.pictures):
            assert sorted(pictures[start : start + stream.pictures]) == list(range(stream.pictures))


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 16))
def test_an_epoch_misses_or_exceeds_no_bucket_by_a_whole_step(data: st.DataObject, effective: int) -> None:
    buckets = data.draw(streams(effective))
    order = Order(buckets, seed=1, effective=effective)
    for epochs in (1, 2, 5):
        consumed = order.consumed(order.steps_in(epochs))
        for stream, used in zip(buckets, consumed, strict=True):
            assert 0 <= epochs * stream.samples - used < effective


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 12))
def test_the_cover_stays_disjoint_and_complete_over_a_change_of_the_batch(
    data: st.DataObject, before: int, after: int
) -> None:
    buckets = data.draw(streams(max(before, after)))
    first = Order(buckets, seed=3, effective=before)
    switch = data.draw(st.integers(0, first.steps_in(2)))
    second = Order(
        buckets, seed=3, effective=after, origin=Origin(switch, first.consumed(switch), first.epochs(switch))
    )
    end = max(second.steps_in(3), switch)
    for bucket, stream in enumerate(buckets):
        pictures = taken(first, bucket, range(switch)) + taken(second, bucket, range(switch, end))
        whole = len(pictures) // stream.pictures
        assert set(Counter(pictures[: whole * stream.pictures]).values()) <= {whole}


def test_the_order_is_a_function_of_seed_and_step_alone() -> None:
    buckets = [Stream(10, 30), Stream(7, 14)]
    forwards, backwards = (Order(buckets, seed=9, effective=4) for _ in range(2))
    steps = range(40)
    seen = {step: forwards.at(step) for step in steps}
    for step in reversed(steps):
        again = backwards.at(step)
        assert again.bucket == seen[step].bucket
        assert again.epoch == seen[step].epoch
        assert np.array_equal(again.pictures, seen[step].pictures)


def test_another_seed_gives_another_order() -> None:
    one, other = (Order([Stream(50, 50)], seed=seed, effective=10).at(0).pictures for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_passes_differ_from_each_other() -> None:
    order = Order([Stream(50, 50)], seed=1, effective=50)
    assert not np.array_equal(order.at(0).pictures, order.at(1).pictures)


def test_a_step_far_out_is_found_without_walking_there() -> None:
    order = Order([Stream(1000, 1000), Stream(333, 999)], seed=1, effective=7)
    assert order.at(10**9).epoch > 10**6


@pytest.mark.parametrize(("before", "after"), [(10, 3), (1, 10), (7, 2)])
def test_a_stream_whose_repeats_changed_neither_floods_nor_starves(before: int, after: int) -> None:
    was = [("changed", 40 * before), ("same", 60)]
    now = [("changed", 40 * after), ("same", 60)]
    first = Order([Stream(40, 40 * before), Stream(60, 60)], seed=1, effective=4)
    reached = Origin(500, first.consumed(500), first.epochs(500))
    second = Order(
        [Stream(40, 40 * after), Stream(60, 60)], seed=1, effective=4, origin=carried_over(reached, was=was, now=now)
    )
    share = 40 * after / (40 * after + 60)
    drawn = [second.at(step).bucket for step in range(500, 1300)]
    assert drawn.count(0) / len(drawn) == pytest.approx(share, abs=0.12)
    again = taken(first, 0, range(500)) + [
        int(p) for s in range(500, 1300) if (d := second.at(s)).bucket == 0 for p in d.pictures
    ]
    assert set(Counter(again[: len(again) // 40 * 40]).values()) == {len(again) // 40}


def test_streams_are_known_again_by_their_names() -> None:
    reached = Origin(9, (30, 20), (1, 2))
    carried = carried_over(reached, was=[("a", 20), ("b", 10)], now=[("b", 10), ("new", 5), ("a", 20)])
    assert carried == Origin(9, (20, 0, 30), (2, 0, 1))
