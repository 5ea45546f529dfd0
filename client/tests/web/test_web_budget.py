"""One bound for the bytes of large answers: those that are read or sent, and those that are kept."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.errors import NotNowError
from oarlock.web import budget
from oarlock.web.budget import Budget
from oarlock.web.busy import BusyError
from oarlock_local import patience


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.0)


def test_who_finds_no_room_is_told_to_try_again_and_room_is_there_once_another_has_ended() -> None:
    room = Budget(100)
    first, second = room.share(), room.share()
    first.resize(80)
    with pytest.raises(BusyError, match="try again"):
        second.resize(30)
    first.resize(70)
    second.resize(30)
    first.release()
    first.release()
    assert room.used == 30


def test_who_waits_gets_the_room_that_another_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "WAIT_SECONDS", patience.SECONDS)
    room = Budget(100)
    first, second = room.share(), room.share()
    first.resize(80)
    waits = threading.Thread(target=second.resize, args=(50,))
    waits.start()
    first.release()
    waits.join(patience.SECONDS)
    assert room.used == 50


def test_one_person_s_answers_take_a_quarter_or_one_alone_takes_more_and_others_find_room() -> None:
    room = Budget(100)
    slow = [room.share("anne") for _ in range(3)]
    slow[0].resize(60)
    with pytest.raises(BusyError, match="you read large files"):
        slow[1].resize(1)
    slow[0].resize(20)
    slow[1].resize(5)
    with pytest.raises(BusyError):
        slow[2].resize(1)
    room.share("bert").resize(25)
    room.share().resize(30)
    room.share().resize(20)
    with pytest.raises(BusyError, match="others read large files"):
        room.share("carl").resize(1)
    slow[0].release()
    slow[2].resize(20)
    assert room.used == 100


def test_a_reader_that_was_given_up_takes_nothing_when_it_goes_on() -> None:
    room = Budget(100)
    share = room.share()
    share.release()
    with pytest.raises(BusyError):
        share.resize(1)
    assert room.used == 0


def test_what_is_larger_than_all_is_refused_at_once() -> None:
    with pytest.raises(NotNowError, match="the job's output"):
        Budget(100).share().resize(101)


def test_what_is_kept_gives_way_to_what_is_read_the_oldest_first() -> None:
    room = Budget(100, most_kept=80)
    for name in "abcd":
        room.keep(name, name.upper(), 20)
    assert room.kept("a") == "A"
    room.share().resize(40)
    assert [room.kept(name) for name in "abcd"] == ["A", None, "C", "D"]
    room.keep("e", "E", 70)
    assert (room.kept("e"), room.used) == (None, 100), "there is no room for it"
    room.close()
    assert room.used == 40


SIZES = st.integers(0, 130)


@given(st.lists(st.tuples(st.sampled_from(["take", "release", "keep"]), st.integers(0, 3), SIZES), max_size=40))
def test_there_is_never_more_than_the_bound(steps: list[tuple[str, int, int]]) -> None:
    room = Budget(100, most_kept=60)
    shares, sizes = [room.share() for _ in range(4)], [0] * 4
    for what, number, size in steps:
        if what == "keep":
            room.keep(number, number, size)
        else:
            wanted = size if what == "take" else 0
            try:
                shares[number].resize(wanted)
            except NotNowError:
                assert sum(sizes) - sizes[number] + wanted > 100
            else:
                sizes[number] = wanted
        assert sum(sizes) <= room.used <= min(100, sum(sizes) + 60)
