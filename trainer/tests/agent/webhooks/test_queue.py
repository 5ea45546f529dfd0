"""What waits, what goes, and when: without a thread, a socket or a clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from webhook_inbox import message

from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_trainer.agent.webhooks.delivery import retry_after
from oarlock_trainer.agent.webhooks.outbox import Outbox
from oarlock_trainer.agent.webhooks.pace import RetryPolicy, TokenBucket

DEBUG, INFO, WARNING, CRITICAL = (
    WebhookLevel.DEBUG,
    WebhookLevel.INFO,
    WebhookLevel.WARNING,
    WebhookLevel.CRITICAL,
)


def test_messages_leave_in_the_order_in_which_they_came() -> None:
    outbox = Outbox()
    for text in "abc":
        outbox.put(message(text))
    assert [outbox.take().body for _ in range(3)] == [b"a", b"b", b"c"]


def test_a_full_queue_lets_the_oldest_of_the_least_level_go() -> None:
    outbox = Outbox(3)
    for text, level in (("a", WARNING), ("b", INFO), ("c", INFO)):
        assert outbox.put(message(text, level)) is None
    assert outbox.put(message("d", CRITICAL)) == message("b", INFO)
    assert outbox.put(message("e", CRITICAL)) == message("c", INFO)
    assert outbox.put(message("f", INFO)) == message("f", INFO), "nothing more important makes room for it"
    assert outbox.put(message("g", WARNING)) == message("a", WARNING)
    assert [outbox.take().body for _ in range(3)] == [b"d", b"e", b"g"]


def test_when_time_is_short_the_most_important_leave_first_and_equals_in_order() -> None:
    outbox = Outbox()
    for text, level in (("a", INFO), ("b", CRITICAL), ("c", DEBUG), ("d", CRITICAL), ("e", INFO)):
        outbox.put(message(text, level))
    assert [outbox.take(most_important=True).body for _ in range(5)] == [b"b", b"d", b"a", b"e", b"c"]


@given(st.lists(st.sampled_from(list(WebhookLevel)), max_size=40), st.integers(1, 8))
def test_whatever_comes_the_queue_keeps_the_most_important_and_loses_count_of_none(
    levels: list[WebhookLevel], size: int
) -> None:
    outbox = Outbox(size)
    gone = [one for place, level in enumerate(levels) if (one := outbox.put(message(str(place), level)))]
    kept = [outbox.take() for _ in range(len(outbox))]
    assert len(gone) + len(kept) == len(levels)
    assert len(kept) == min(len(levels), size)
    assert sorted(one.level.weight for one in kept) == sorted(level.weight for level in levels)[-size:]
    assert [int(one.body) for one in kept] == sorted(int(one.body) for one in kept)


def test_a_bucket_lets_its_size_go_at_once_and_then_one_in_each_share_of_the_time() -> None:
    bucket = TokenBucket(size=30, seconds=60.0)
    for _ in range(30):
        assert bucket.wait(100.0) == 0.0
        bucket.take(100.0)
    assert bucket.wait(100.0) == 2.0
    assert bucket.wait(101.5) == 0.5
    assert bucket.wait(102.0) == 0.0
    bucket.take(102.0)
    assert bucket.wait(102.0) == 2.0
    assert bucket.wait(1e9) == 0.0


@given(st.lists(st.floats(0.0, 20.0), max_size=200))
def test_no_minute_sees_more_than_a_full_bucket_and_a_minute_s_share(pauses: list[float]) -> None:
    bucket, now, sent = TokenBucket(size=30, seconds=60.0), 0.0, []
    for pause in pauses:
        now += pause
        if bucket.wait(now) == 0.0:
            bucket.take(now)
            sent.append(now)
    for start in sent:
        assert len([moment for moment in sent if start <= moment < start + 60.0]) <= 61


@given(st.integers(1, 40), st.floats(0.0, 1.0))
def test_pauses_double_within_bounds_and_chance_shortens_them_by_half_at_most(tries: int, chance: float) -> None:
    whole = min(2.0 ** (tries - 1), 30.0)
    assert whole / 2.0 <= RetryPolicy().delay(tries, chance) <= whole


def test_five_tries_and_their_pauses_fit_in_a_minute() -> None:
    retries = RetryPolicy()
    assert sum(retries.delay(tries, 0.0) for tries in range(1, retries.tries)) == 15.0
    assert retries.seconds == 60.0


def test_a_receiver_is_never_written_to_sooner_than_it_asked() -> None:
    for chance in (0.0, 0.5, 1.0):
        assert RetryPolicy().delay(1, chance, 7.0) >= 7.0


def test_retry_after_is_read_in_both_of_its_forms_and_nonsense_is_nothing() -> None:
    now = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    assert retry_after("7", now) == 7.0
    assert retry_after("0.5", now) == 0.5
    assert retry_after("Thu, 01 Jan 2026 00:00:30 GMT", now) == 30.0
    assert retry_after("Wed, 31 Dec 2025 00:00:00 GMT", now) == 0.0
    assert [retry_after(header, now) for header in (None, "", "soon", "nan", "inf")] == [None] * 5
