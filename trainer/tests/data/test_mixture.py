"""Datasets by probability beside datasets by size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oarlock_local.pytest_tiers import examples
from oarlock_trainer.data.mixture import BLOCK, Group, Mixture
from oarlock_trainer.data.sampler import Origin, Stream

STREAMS = [Stream(12, 24), Stream(7, 14), Stream(50, 50)]


def mixture(*shares: float, effective: int = 4, origin: Origin | None = None) -> Mixture:
    groups = [Group((0, 1), shares[0]), Group((2,), shares[1])]
    return Mixture(STREAMS, groups, seed=5, effective=effective, origin=origin or Origin())


@settings(max_examples=examples(30), deadline=None)
@given(st.floats(0.01, 0.99), st.integers(1, 3000))
def test_a_group_gets_its_share_of_the_steps_within_two_at_any_block(share: float, steps: int) -> None:
    drawn = mixture(1 - share, share)
    for block in (1, steps // BLOCK + 1, 10**9):
        assert drawn.reached(block * BLOCK).consumed[2] / 4 == pytest.approx(share * block * BLOCK, abs=2)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(0, 1500))
def test_what_was_consumed_is_what_was_drawn(share: float, steps: int) -> None:
    drawn = mixture(1 - share, share)
    counts = Counter(drawn.at(step).bucket for step in range(steps))
    assert drawn.reached(steps).consumed == tuple(counts[bucket] * 4 for bucket in range(3))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(0, 300), st.integers(1, 9))
@example(
    share=0.5, switch=284, effective=1
)  # what an epoch left over of the larger batch is several steps of the smaller
def test_the_cover_goes_on_over_a_change_of_shares_and_batch(share: float, switch: int, effective: int) -> None:
    first = mixture(1 - share, share)
    second = mixture(share, 1 - share, effective=effective, origin=first.reached(switch))
    end = switch + 300
    drawn = [first.at(step) for step in range(switch)] + [second.at(step) for step in range(switch, end)]
    for bucket, stream in enumerate(STREAMS):
        pictures = [int(picture) for one in drawn if one.bucket == bucket for picture in one.pictures]
        for start in range(0, len(pictures) - stream.pictures + 1, stream.pictures):
            assert sorted(pictures[start : start + stream.pictures]) == list(range(stream.pictures))


def test_steps_can_be_asked_for_in_any_order() -> None:
    forwards, backwards = mixture(0.7, 0.3), mixture(0.7, 0.3)
    seen = {step: forwards.at(step) for step in range(2200)}
    for step in reversed(range(0, 2200, 7)):
        again = backwards.at(step)
        assert (again.bucket, again.epoch) == (seen[step].bucket, seen[step].epoch)
        assert again.pictures.tolist() == seen[step].pictures.tolist()


@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_epochs_are_those_of_the_first_group(epochs: int) -> None:
    drawn = mixture(0.6, 0.4)
    end = drawn.steps_in(epochs)
    for bucket in (0, 1):
        whole = epochs * STREAMS[bucket].samples // 4 * 4
        assert drawn.reached(end).consumed[bucket] == whole
    assert sum(drawn.reached(end - 1).consumed[:2]) < sum(drawn.reached(end).consumed[:2])


def test_one_group_alone_is_drawn_from_at_every_step() -> None:
    drawn = Mixture(STREAMS, [Group((0, 1, 2), 1.0)], seed=1, effective=5, origin=Origin())
    assert sum(drawn.reached(4000).consumed) == 4000 * 5
