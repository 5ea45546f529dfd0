"""The key of a gang: who has one has no other, and what was signed cannot be used elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract import gang_key
from oarlock_api.contract.gang_key import mac
from oarlock_api.contract.rounds import MAX_LOST, SurgePod, ended_of, surge_of, words_of_ended, words_of_surge

KEYS = st.binary(min_size=32, max_size=32)
PARTS = st.lists(st.text(max_size=5) | st.binary(max_size=5), max_size=4)


def as_bytes(parts: list[str | bytes]) -> list[bytes]:
    return [part.encode() if isinstance(part, str) else part for part in parts]


@given(KEYS, PARTS, PARTS)
def test_two_lists_of_parts_have_one_mac_only_if_they_are_the_same(
    key: bytes, one: list[str | bytes], other: list[str | bytes]
) -> None:
    assert (mac(key, *one) == mac(key, *other)) == (as_bytes(one) == as_bytes(other))


def test_every_job_and_every_attempt_has_a_key_of_its_own() -> None:
    jobs = [gang_key.job_key(b"m" * 32, uid) for uid in ("a", "b")]
    attempts = [
        gang_key.attempt_key(key, uid, attempt) for key, uid in zip(jobs, "ab", strict=True) for attempt in (1, 2)
    ]
    assert len({*jobs, *attempts, *(gang_key.job_key(b"n" * 32, uid) for uid in ("a", "b"))}) == 8
    assert len({gang_key.fingerprint(key) for key in jobs}) == 2


@given(KEYS, st.floats(0, 4e9), st.floats(-1000, 1000))
def test_a_question_holds_for_five_minutes_around_its_time(key: bytes, now: float, later: float) -> None:
    target = gang_key.question(key, "/status", pod_uid="p", now=now)
    fresh = abs(now + later - int(now)) <= gang_key.FRESH_SECONDS
    assert gang_key.asked_by_one_of_us(key, target, pod_uid="p", now=now + later) == fresh


@given(KEYS, st.text(max_size=300), st.text(max_size=20))
def test_no_target_makes_asking_fail_and_none_is_signed_by_chance(key: bytes, target: str, said: str) -> None:
    assert not gang_key.asked_by_one_of_us(key, target, pod_uid="p", now=0)
    assert gang_key.answered(key, target, said) is None


@given(
    KEYS,
    st.sampled_from(["", "save.42"]),
    st.sampled_from(["", "1-2", "0-9.63-12"]),
    st.sampled_from(["", "none", "1-2-150"]),
)
def test_what_a_question_says_besides_is_believed_with_its_own_proof_alone(
    key: bytes, request: str, ended: str, surge: str
) -> None:
    target = gang_key.question(key, "/status", pod_uid="p", now=1e9, request=request, ended=ended, surge=surge)
    assert gang_key.told_of_surge(key, target, pod_uid="p") == surge
    assert gang_key.told_of_surge(key, target, pod_uid="q") == ""
    assert gang_key.told_of_surge(key, target.replace("surge=", "surge=7-7-7."), pod_uid="p") == ""
    assert gang_key.asked_by_one_of_us(key, target, pod_uid="p", now=1e9)
    assert gang_key.requested(key, target, pod_uid="p") == request
    assert gang_key.told_to_have_ended(key, target, pod_uid="p") == ended
    assert gang_key.told_to_have_ended(key, target, pod_uid="q") == ""
    assert gang_key.told_to_have_ended(key, target.replace("ended=", "ended=7-7."), pod_uid="p") == ""


def test_the_longest_question_is_read_to_its_end() -> None:
    ended, surge = words_of_ended([(4095, 1_000_000)] * 20), words_of_surge([SurgePod(4095, 1_000_000, 999_999)] * 20)
    about = {"request": "stacks." + "i" * 63, "ended": ended, "surge": surge}
    target = gang_key.question(b"k" * 32, "/status", pod_uid="p", now=1e9, **about)
    assert gang_key.told_of_surge(b"k" * 32, target, pod_uid="p") == surge
    assert gang_key.told_to_have_ended(b"k" * 32, target, pod_uid="p") == ended


@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(1, 10**6)), max_size=MAX_LOST))
def test_pods_that_have_ended_are_read_as_they_were_said(pods: list[tuple[int, int]]) -> None:
    assert ended_of(words_of_ended(pods)) == tuple(pods)


@given(
    st.lists(
        st.builds(SurgePod, st.integers(0, 4095), st.integers(1, 10**6), st.integers(0, 86_400)), max_size=MAX_LOST
    )
)
def test_surge_pods_are_read_as_they_were_said_and_so_is_that_there_are_none(pods: list[SurgePod]) -> None:
    assert surge_of(words_of_surge(pods)) == tuple(pods)
    assert surge_of("") is None


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_whatever_is_said_of_surge_pods_is_read_without_an_error(words: str) -> None:
    assert len(surge_of(words) or ()) <= MAX_LOST


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_whatever_is_said_to_have_ended_is_read_without_an_error(words: str) -> None:
    assert len(ended_of(words)) <= MAX_LOST
