"""Datasets that come and go with the steps."""

from __future__ import annotations

import pytest

from oarlock_trainer.data.sampler import Origin, Stream
from oarlock_trainer.data.timeline import Timeline, Turn
from oarlock_trainer.runtime.errors import ConfigurationError

STREAMS = [Stream(20, 20), Stream(15, 15), Stream(30, 30)]
ALWAYS = Turn(dataset="always", streams=(0,))
EARLY = Turn(dataset="early", streams=(1,), end=100)
LATE = Turn(dataset="late", streams=(2,), start=60)


def timeline(*turns: Turn, effective: int = 5, origin: Origin | None = None) -> Timeline:
    return Timeline(STREAMS, turns, seed=3, effective=effective, origin=origin)


def buckets(line: Timeline, steps: range) -> set[int]:
    return {line.at(step).bucket for step in steps}


def test_a_dataset_is_drawn_from_within_its_window_alone() -> None:
    line = timeline(ALWAYS, EARLY, LATE)
    assert buckets(line, range(60)) == {0, 1}
    assert buckets(line, range(60, 100)) == {0, 1, 2}
    assert buckets(line, range(100, 200)) == {0, 2}


def test_every_pass_stays_whole_over_the_edges_of_windows() -> None:
    line = timeline(ALWAYS, EARLY, LATE)
    drawn = [line.at(step) for step in range(400)]
    for bucket in (0, 2):
        pictures = [int(picture) for one in drawn if one.bucket == bucket for picture in one.pictures]
        size = STREAMS[bucket].pictures
        for start in range(0, len(pictures) - size + 1, size):
            assert sorted(pictures[start : start + size]) == list(range(size))


def test_a_run_that_begins_in_the_middle_equals_one_that_began_at_the_start() -> None:
    whole = timeline(ALWAYS, EARLY, LATE)
    for step in (0, 59, 60, 99, 100, 333):
        anew = timeline(ALWAYS, EARLY, LATE)
        assert anew.at(step).pictures.tolist() == whole.at(step).pictures.tolist()
        assert anew.reached(step).consumed == whole.reached(step).consumed


def test_another_batch_goes_on_where_the_first_left_every_stream() -> None:
    first = timeline(ALWAYS, EARLY, LATE)
    second = timeline(ALWAYS, EARLY, LATE, effective=3, origin=first.reached(80))
    assert second.reached(80) == first.reached(80)
    assert buckets(second, range(80, 100)) <= {0, 1, 2}
    assert buckets(second, range(100, 160)) == {0, 2}
    drawn = [first.at(step) for step in range(80)] + [second.at(step) for step in range(80, 300)]
    pictures = [int(picture) for one in drawn if one.bucket == 0 for picture in one.pictures][:20]
    assert sorted(pictures) == list(range(20))


def test_equal_digests_mean_equal_orders() -> None:
    assert timeline(ALWAYS, EARLY).digest == timeline(ALWAYS, EARLY).digest
    assert timeline(ALWAYS, EARLY).digest != timeline(ALWAYS, LATE).digest
    assert timeline(ALWAYS).digest != timeline(ALWAYS, effective=4).digest


def test_steps_without_any_dataset_are_refused_with_the_first_of_them() -> None:
    with pytest.raises(ConfigurationError, match=r"steps 101 to 101 have no dataset.*early: 1 to 100.*lower training"):
        timeline(EARLY).check(101)
    timeline(EARLY).check(100)


def test_probabilities_that_leave_nothing_for_the_others_are_refused_by_name() -> None:
    greedy = Turn(dataset="greedy", streams=(1,), probability=1.0)
    with pytest.raises(ConfigurationError, match="leaves no step for always"):
        timeline(ALWAYS, greedy)


def test_where_all_have_a_probability_they_are_drawn_in_proportion() -> None:
    line = timeline(
        Turn(dataset="one", streams=(0,), probability=0.1), Turn(dataset="two", streams=(1,), probability=0.3)
    )
    one, two, _ = line.reached(4096).consumed
    assert two / one == pytest.approx(3.0, abs=0.02)


def test_a_probability_of_nothing_takes_a_dataset_out() -> None:
    assert buckets(timeline(ALWAYS, Turn(dataset="off", streams=(1,), probability=0.0)), range(50)) == {0}


def test_epochs_with_a_window_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"training\.steps"):
        timeline(ALWAYS, LATE).steps_in(2)


def test_a_dataset_that_joins_late_does_not_catch_up() -> None:
    line = timeline(ALWAYS, Turn(dataset="late", streams=(2,), start=1000))
    drawn = [line.at(step).bucket for step in range(1000, 1100)]
    # 20 and 30 pictures in steps of 5: four steps to six.
    assert drawn.count(0) == 40
    assert drawn.count(2) == 60
