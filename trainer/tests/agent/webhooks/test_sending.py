"""A sender brings messages to a real receiver in order and in time, or gives them up by the rules."""

from __future__ import annotations

import logging
import math
import socket
import time

import pytest
from webhook_inbox import QUICK, TOKEN_REF, URL_REF, Inbox, delivered, finished, message, variable

from oarlock_api.contract.sections import Webhook
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.webhooks import pace
from oarlock_trainer.agent.webhooks.pace import RetryPolicy, TokenBucket
from oarlock_trainer.agent.webhooks.receivers import receiver_of
from oarlock_trainer.agent.webhooks.sender import Sender, Tally


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_receiver_that_cannot_take_it_now_gets_it_again_unchanged(inbox: Inbox, status: int) -> None:
    inbox.answer(status, times=2)
    sender = Sender(inbox.receiver(), retries=QUICK)
    sender.put(message("one"))
    assert delivered(sender, 1) == Tally(sent=1)
    assert inbox.bodies == [b"one"] * 3


@pytest.mark.parametrize("status", [400, 401, 404, 410, 413])
def test_a_receiver_that_refuses_it_is_not_asked_again(inbox: Inbox, status: int) -> None:
    inbox.answer(status)
    sender = Sender(inbox.receiver(), retries=QUICK)
    sender.put(message("one"))
    sender.put(message("two"))
    assert delivered(sender, 2) == Tally(sent=1, lost=1)
    assert inbox.bodies == [b"one", b"two"]


def test_after_five_tries_a_message_is_given_up_and_the_next_one_has_its_own(inbox: Inbox) -> None:
    inbox.answer(500, times=5)
    sender = Sender(inbox.receiver(), retries=QUICK)
    sender.put(message("one"))
    sender.put(message("two"))
    assert delivered(sender, 2) == Tally(sent=1, lost=1)
    assert inbox.bodies == [b"one"] * 5 + [b"two"]


def test_the_pause_that_a_receiver_asks_for_is_kept(inbox: Inbox) -> None:
    inbox.answer(429, Retry_After="0.3")
    sender = Sender(inbox.receiver(), retries=QUICK)
    sender.put(message())
    assert delivered(sender, 1) == Tally(sent=1)
    first, second = inbox.received
    assert second.at - first.at >= 0.3


def test_a_pause_that_outlasts_our_patience_ends_the_message_at_once(inbox: Inbox) -> None:
    inbox.answer(429, Retry_After="3600")
    sender = Sender(inbox.receiver())
    sender.put(message())
    assert delivered(sender, 1) == Tally(lost=1)
    assert len(inbox.received) == 1


def test_messages_arrive_in_order_also_when_the_first_has_to_be_repeated(inbox: Inbox) -> None:
    inbox.answer(503, times=3)
    sender = Sender(inbox.receiver(), retries=QUICK)
    for number in range(20):
        sender.put(message(str(number)))
    assert delivered(sender, 20) == Tally(sent=20)
    assert inbox.bodies[3:] == [str(number).encode() for number in range(20)]


def test_a_receiver_that_is_not_there_yet_gets_the_message_when_it_is() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        receiver = receiver_of(Webhook(name="late", url=f"http://127.0.0.1:{port}/x"), {})
        sender = Sender(receiver, retries=RetryPolicy(tries=100, first_delay=0.05))
        sender.put(message("one"))
        taken.listen()
        connection, _ = taken.accept()
        with connection:
            assert connection.recv(65536).startswith(b"POST /x HTTP/1.1\r\n")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert delivered(sender, 1) == Tally(sent=1)


def test_a_slow_receiver_never_blocks_whoever_has_something_to_tell(inbox: Inbox) -> None:
    inbox.answers.open.clear()
    sender = Sender(inbox.receiver(), size=5)
    sender.put(message("first"))
    eventually(lambda: inbox.received, "the first message to be stuck")
    for number in range(1000):
        sender.put(message(str(number)))
    assert sender.tally == Tally(dropped=995)
    inbox.answers.open.set()
    assert delivered(sender, 6).sent == 6
    assert inbox.bodies == [b"first", b"995", b"996", b"997", b"998", b"999"]


def test_an_important_message_outlives_a_flood_of_lesser_ones(inbox: Inbox) -> None:
    inbox.answers.open.clear()
    sender = Sender(inbox.receiver(), size=5)
    sender.put(message("first"))
    eventually(lambda: inbox.received, "the first message to be stuck")
    sender.put(message("fault", WebhookLevel.CRITICAL))
    for _ in range(100):
        sender.put(message("noise", WebhookLevel.DEBUG))
    inbox.answers.open.set()
    assert delivered(sender, 6).sent == 6
    assert inbox.bodies[1] == b"fault"


def test_more_than_the_limit_waits_and_is_sent_in_its_time(inbox: Inbox) -> None:
    sender = Sender(inbox.receiver(), bucket=TokenBucket(size=2, seconds=0.4))
    for number in range(4):
        sender.put(message(str(number)))
    assert delivered(sender, 4) == Tally(sent=4)
    assert inbox.bodies == [b"0", b"1", b"2", b"3"]
    assert inbox.received[3].at - inbox.received[0].at >= 0.35


def test_closing_cuts_a_pause_short_and_sends_the_most_important_first(inbox: Inbox) -> None:
    inbox.answer(503, Retry_After="50")
    sender = Sender(inbox.receiver())
    sender.put(message("stuck"))
    eventually(lambda: inbox.received, "the first try")
    for text, level in (("a", WebhookLevel.INFO), ("b", WebhookLevel.ERROR), ("c", WebhookLevel.DEBUG)):
        sender.put(message(text, level))
    assert finished(sender) == Tally(sent=4)
    assert inbox.bodies == [b"stuck", b"stuck", b"b", b"a", b"c"]


def test_a_try_that_closing_overtakes_gets_another_at_once(inbox: Inbox) -> None:
    inbox.answers.open.clear()
    inbox.answer(503, Retry_After="50")
    sender = Sender(inbox.receiver())
    sender.put(message("stuck"))
    eventually(lambda: inbox.received, "the first try")
    sender.close(time.monotonic() + patience.SECONDS)
    inbox.answers.open.set()
    assert finished(sender) == Tally(sent=1)
    assert inbox.bodies == [b"stuck", b"stuck"]


def test_closing_takes_no_longer_than_it_may_and_says_what_was_left(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.answers.open.clear()
    sender = Sender(inbox.receiver())
    for number in range(3):
        sender.put(message(str(number)))
    eventually(lambda: inbox.received, "the first message to be stuck")
    assert finished(sender, within=0.2) == Tally(), "before the first message had its time"
    assert "3 messages were not sent before the end" in caplog.text


def test_closing_does_not_wait_for_pauses_that_outlast_it(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.answer(503, times=100)
    monkeypatch.setattr(pace, "_LONGEST_DELAY", math.inf)
    sender = Sender(inbox.receiver(), retries=RetryPolicy(seconds=math.inf, first_delay=4 * patience.SECONDS))
    sender.put(message())
    eventually(lambda: sender._changed._waiters, "the pause after the first try: closing before it leaves no second")
    assert finished(sender) == Tally(lost=1)
    assert len(inbox.received) == 2, "one more try at once, and none that comes too late"


def test_nothing_is_sent_after_closing_and_nobody_is_harmed_by_trying(inbox: Inbox) -> None:
    sender = Sender(inbox.receiver())
    assert finished(sender) == Tally()
    sender.put(message())
    assert sender.tally == Tally(dropped=1)
    assert finished(sender) == Tally(dropped=1)
    assert not inbox.received


def test_no_log_line_holds_an_address_s_path_a_token_or_a_key(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    environment = {variable(URL_REF): f"{inbox.url}/hook-secret", variable(TOKEN_REF): "tok-secret"}
    webhook = Webhook(
        name="chat",
        type=WebhookType.DISCORD,
        url_secret_ref=URL_REF,
        auth_secret_ref=TOKEN_REF,
        signature_secret_ref=TOKEN_REF,
    )
    inbox.answer(404)
    with caplog.at_level(logging.DEBUG):
        for receiver in (
            receiver_of(webhook, environment),
            receiver_of(webhook, {**environment, variable(URL_REF): "http://127.0.0.1:9/hook-secret"}),
            receiver_of(webhook, {**environment, variable(URL_REF): "https://no-such-host.invalid/hook-secret"}),
        ):
            sender = Sender(receiver, retries=RetryPolicy(tries=2, first_delay=0.01), size=1)
            for _ in range(3):
                sender.put(message())
            eventually(lambda s=sender: s.tally.lost, "a message to be given up")
            finished(sender)
    assert "was not taken" in caplog.text
    assert "a message was dropped" in caplog.text
    everything = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "-secret" not in everything.replace("OARLOCK_SECRET", "")
