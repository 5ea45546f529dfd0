"""The words of the gang link, without any socket."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.link import proof
from oarlock_trainer.agent.link.loop import AwakeClock
from oarlock_trainer.agent.link.protocol import (
    MAX_LINE,
    PEACEFUL,
    AllLeft,
    Answer,
    Ask,
    Beat,
    Challenge,
    Frame,
    Gang,
    Hello,
    Leave,
    Left,
    Lines,
    PeerLost,
    Refused,
    Welcome,
    decode,
    encode,
    encode_left,
    plain,
    refusal,
)
from oarlock_trainer.agent.link.sparse_log import SparseLog
from oarlock_trainer.agent.link.words import MAX_WHY

GANG = Gang(job_uid="u", attempt=3, rank=0, nodes=4, heartbeat=1.0, silence=5.0)
WORDS = st.text(max_size=2 * MAX_WHY)
RANKS = st.integers(0, 10**6)
CODES = st.integers(0, 255)
FRAMES = st.one_of(
    st.builds(
        Hello,
        job_uid=st.text(st.characters(codec="utf-8"), min_size=1, max_size=36),
        attempt=st.integers(0, 10**6),
        rank=RANKS,
        agent=st.text("0123456789abcdef", min_size=1, max_size=16),
    ).map(lambda hello: proof.signed(hello, b"k", "nonce") if hello.rank % 2 else hello),
    st.builds(Challenge, st.text("0123456789abcdef", max_size=32)),
    st.builds(Welcome),
    st.builds(Beat),
    st.builds(Refused, WORDS),
    st.builds(Leave, st.none() | CODES, WORDS, st.booleans()),
    st.builds(PeerLost, st.none() | RANKS, st.none() | CODES, WORDS),
    st.builds(Ask, st.text("abc", max_size=64), st.text("abc-9", max_size=64)),
    st.builds(Answer, st.text("abc", max_size=64), st.text("abc-9", max_size=64), WORDS),
    st.builds(AllLeft, st.lists(st.builds(Left, RANKS, CODES), max_size=64).map(tuple)),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
STRANGE = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(
            ["hello", "welcome", "refused", "beat", "leave", "lost", "left", "ask", "answer", "other"]
        )
        | JSON
    },
    optional=dict.fromkeys(
        ("rank", "code", "why", "over", "peers", "jobUid", "attempt", "agent", "version", "topic", "name", "words"),
        JSON,
    ),
)


@given(st.binary(max_size=2 * MAX_LINE))
def test_no_bytes_make_reading_fail(line: bytes) -> None:
    decode(line)


@given(STRANGE)
def test_a_frame_with_strange_values_is_read_as_one_that_can_be_passed_on(values: dict[str, object]) -> None:
    frame = decode(json.dumps(values).encode())
    if frame is not None:
        assert len(encode(frame)) <= MAX_LINE
        assert decode(encode(frame).rstrip(b"\n")) == frame


@given(FRAMES)
def test_every_frame_is_one_line_within_bounds_that_reads_as_it_was(frame: Frame) -> None:
    line = encode(frame)
    assert len(line) <= MAX_LINE
    assert line.index(b"\n") == len(line) - 1
    read = decode(line[:-1])
    if isinstance(frame, Answer):
        assert isinstance(read, Answer)
        assert (read.topic, read.name) == (frame.topic, frame.name)
        assert plain(frame.words).startswith(read.words)
    elif isinstance(frame, Leave | PeerLost | Refused):
        assert isinstance(read, type(frame))
        assert plain(frame.why).startswith(read.why)
        assert encode(read) == line
    else:
        assert read == frame


@given(st.text(max_size=2000))
def test_a_reason_is_one_bounded_line_without_control_characters(words: str) -> None:
    reason = plain(words)
    assert len(reason) <= MAX_WHY
    assert reason.isprintable()
    assert plain(reason) == reason


def test_a_reason_in_another_script_keeps_what_fits() -> None:
    line = encode(PeerLost(1, 83, "🚣" * 400))
    assert MAX_LINE * 3 // 4 < len(line) <= MAX_LINE


@given(st.binary(max_size=4 * MAX_LINE), st.lists(st.integers(1, 2 * MAX_LINE), max_size=8))
def test_lines_are_the_same_however_the_stream_was_cut(stream: bytes, sizes: list[int]) -> None:
    whole, pieces = Lines(), Lines()
    expected = whole.feed(stream)
    found = []
    for size in sizes:
        found += pieces.feed(stream[:size])
        stream = stream[size:]
    found += pieces.feed(stream)
    assert (found, pieces.overlong) == (expected, whole.overlong)
    assert len(pieces._rest) < MAX_LINE


def test_nothing_comes_after_a_line_that_is_too_long() -> None:
    lines = Lines()
    assert lines.feed(b"one\n" + b"x" * MAX_LINE + b"\ntwo\n") == [b"one"]
    assert lines.overlong
    assert lines.feed(b"three\n") == []


def test_a_gang_of_thousands_that_leaves_is_named_in_full_within_the_bounds() -> None:
    peers = [Left(rank, 86) for rank in range(1, 4096)]
    lines = encode_left(peers).splitlines()
    assert max(map(len, lines)) < MAX_LINE
    assert [peer for line in lines for peer in decode(line).peers] == peers


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, ""),
        ({"rank": 3}, ""),
        ({"version": 2}, "version 2"),
        ({"job_uid": "another"}, "another job"),
        ({"attempt": 2}, "attempt 2, this is attempt 3"),
        ({"attempt": 4}, "attempt 4"),
        ({"rank": 0}, "1..3"),
        ({"rank": 4}, "1..3"),
        ({"rank": -1}, "1..3"),
    ],
)
def test_only_a_member_of_this_attempt_fits(changes: dict[str, object], word: str) -> None:
    hello = Hello(**{"job_uid": "u", "attempt": 3, "rank": 1, "agent": "a"} | changes)
    assert word in refusal(hello, GANG)
    assert bool(refusal(hello, GANG)) == bool(word)


def test_peace_is_what_the_contract_calls_done_and_left_on_request() -> None:
    assert {ExitCode.DONE, ExitCode.LEFT_ON_REQUEST} == PEACEFUL


@given(st.lists(st.floats(-10, 100), max_size=20))
def test_no_turn_counts_for_more_than_its_share_of_silence(turns: list[float]) -> None:
    now, counted = 0.0, 0.0
    clock = AwakeClock(now, longest=1.0)
    for seconds in turns:
        now += seconds
        clock.advance(now)
        assert 0.0 <= clock.seconds - counted <= 1.0 + 1e-9  # rounded sums
        counted = clock.seconds


def test_time_that_was_watched_counts_in_full() -> None:
    clock = AwakeClock(100.0, longest=1.0)
    for quarter in range(1, 41):
        clock.advance(100.0 + quarter / 4)
    assert clock.seconds == 10.0


def test_a_warning_that_strangers_cause_is_logged_once_a_minute_with_the_number_held_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        log = SparseLog()
        for second in range(121):
            log.warning("turned away", now=float(second))
    assert [record.heldBack for record in caplog.records] == [0, 59, 59]
