"""The key of a gang: who has one has no other, and what was signed cannot be used elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract import gang_key
from oarlock_api.contract.gang_key import mac

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
