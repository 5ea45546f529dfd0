"""Messages reach a real receiver over a real connection, or are given up by the rules."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import eventually
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from webhook_inbox import Inbox, message

from oarlock_api.contract.job_file import Webhook, WebhookLevel, WebhookType
from oarlock_trainer.agent.webhooks.delivery import Post, address_of
from oarlock_trainer.agent.webhooks.pace import Bucket, Patience
from oarlock_trainer.agent.webhooks.receivers import receiver_of
from oarlock_trainer.agent.webhooks.sender import Sender, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.agent.webhooks.delivery import Answer

QUICK = Patience(first_delay=0.01)
DOCS = Path(__file__).parents[4] / "docs/webhooks.md"


def finished(sender: Sender, within: float = 20.0) -> Tally:
    """Close and wait; `within` is a bound, not a pause."""
    sender.close(time.monotonic() + within)
    sender.join()
    return sender.tally


def delivered(sender: Sender, count: int) -> Tally:
    return eventually(lambda: (tally := sender.tally).sent + tally.lost >= count and tally, f"{count} messages to end")


def post(url: str, seconds: float = 5.0) -> Answer:
    return Post(address_of(url), seconds=seconds)(b"{}", {"Content-Type": "application/json"}, now=time.time())


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_receiver_that_cannot_take_it_now_gets_it_again_unchanged(inbox: Inbox, status: int) -> None:
    inbox.answer(status, times=2)
    sender = Sender(inbox.receiver(), patience=QUICK)
    sender.put(message("one"))
    assert delivered(sender, 1) == Tally(sent=1)
    assert inbox.bodies == [b"one"] * 3


@pytest.mark.parametrize("status", [400, 401, 404, 410, 413])
def test_a_receiver_that_refuses_it_is_not_asked_again(inbox: Inbox, status: int) -> None:
    inbox.answer(status)
    sender = Sender(inbox.receiver(), patience=QUICK)
    sender.put(message("one"))
    sender.put(message("two"))
    assert delivered(sender, 2) == Tally(sent=1, lost=1)
    assert inbox.bodies == [b"one", b"two"]


def test_after_five_tries_a_message_is_given_up_and_the_next_one_has_its_own(inbox: Inbox) -> None:
    inbox.answer(500, times=5)
    sender = Sender(inbox.receiver(), patience=QUICK)
    sender.put(message("one"))
    sender.put(message("two"))
    assert delivered(sender, 2) == Tally(sent=1, lost=1)
    assert inbox.bodies == [b"one"] * 5 + [b"two"]


def test_the_pause_that_a_receiver_asks_for_is_kept(inbox: Inbox) -> None:
    inbox.answer(429, Retry_After="0.3")
    sender = Sender(inbox.receiver(), patience=QUICK)
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
    sender = Sender(inbox.receiver(), patience=QUICK)
    for number in range(20):
        sender.put(message(str(number)))
    assert delivered(sender, 20) == Tally(sent=20)
    assert inbox.bodies[3:] == [str(number).encode() for number in range(20)]


def test_a_receiver_that_is_not_there_yet_gets_the_message_when_it_is() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        receiver = receiver_of(Webhook(name="late", url=f"http://127.0.0.1:{port}/x"), {})
        sender = Sender(receiver, patience=Patience(tries=100, first_delay=0.05))
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
    sender = Sender(inbox.receiver(), bucket=Bucket(size=2, seconds=0.4))
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


def test_closing_does_not_wait_for_pauses_that_outlast_it(inbox: Inbox) -> None:
    inbox.answer(503, times=100)
    sender = Sender(inbox.receiver(), patience=Patience(first_delay=30.0))
    sender.put(message())
    eventually(lambda: inbox.received, "the first try")
    assert finished(sender, within=14.0) == Tally(lost=1)
    assert len(inbox.received) == 2, "one more try at once, and none that comes too late"


def test_nothing_is_sent_after_closing_and_nobody_is_harmed_by_trying(inbox: Inbox) -> None:
    sender = Sender(inbox.receiver())
    assert finished(sender) == Tally()
    sender.put(message())
    assert sender.tally == Tally(dropped=1)
    assert finished(sender) == Tally(dropped=1)
    assert not inbox.received


def test_a_redirect_is_not_followed_so_that_no_token_goes_elsewhere(inbox: Inbox) -> None:
    inbox.answer(307, Location=f"{inbox.url}/elsewhere")
    environment = {"OARLOCK_SECRET_T": "token"}
    sender = Sender(inbox.receiver("/hook", environment, auth_variable="OARLOCK_SECRET_T"), patience=QUICK)
    sender.put(message())
    assert delivered(sender, 1) == Tally(lost=1)
    assert [one.path for one in inbox.received] == ["/hook"]


@pytest.mark.parametrize(
    ("url", "path", "login"),
    [
        ("/a/b?c=d&e=%20", "/a/b?c=d&e=%20", None),
        ("", "/", None),
        ("?c=d", "/?c=d", None),
        ("/größe?ä=1", "/gr%C3%B6%C3%9Fe?%C3%A4=1", None),
        ("/x#fragment", "/x", None),
    ],
)
def test_an_address_s_path_and_query_arrive_as_they_were_meant(
    inbox: Inbox, url: str, path: str, login: str | None
) -> None:
    assert post(inbox.url + url).taken
    assert (inbox.received[0].path, inbox.received[0].headers.get("Authorization")) == (path, login)


def test_a_user_and_password_in_the_address_go_where_http_has_a_place_for_them(inbox: Inbox) -> None:
    assert post(inbox.url.replace("//", "//me:p%40ss@") + "/x").taken
    assert inbox.received[0].headers["Authorization"] == "Basic bWU6cEBzcw=="


def test_a_message_says_what_it_is_and_carries_the_token(inbox: Inbox) -> None:
    environment = {"OARLOCK_SECRET_T": "token-1\n"}
    sender = Sender(inbox.receiver("/hook", environment, auth_variable="OARLOCK_SECRET_T"))
    sender.put(message(kind="gpu.fault"))
    delivered(sender, 1)
    headers = inbox.received[0].headers
    assert (headers["X-API-Key"], headers["X-Oarlock-Event"]) == ("token-1", "gpu.fault")
    assert headers["Content-Type"] == "application/json"
    assert "X-Oarlock-Signature" not in headers


def test_a_signature_verifies_by_what_the_documentation_shows_and_each_try_is_signed_anew(inbox: Inbox) -> None:
    shown: dict[str, Any] = {}
    snippet = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert snippet
    exec(snippet.group(1), shown)  # noqa: S102 - our own page, run as a reader would
    inbox.answer(500)
    environment = {"OARLOCK_SECRET_K": "key-1"}
    sender = Sender(inbox.receiver("/hook", environment, signature_variable="OARLOCK_SECRET_K"), patience=QUICK)
    sender.put(message("größer"))
    delivered(sender, 1)
    assert len(inbox.received) == 2
    for one in inbox.received:
        assert shown["is_genuine"](b"key-1", one.headers, one.body)
        assert not shown["is_genuine"](b"key-2", one.headers, one.body)
        assert not shown["is_genuine"](b"key-1", one.headers, one.body + b" ")
        later = {**one.headers, "X-Oarlock-Timestamp": str(int(one.headers["X-Oarlock-Timestamp"]) + 1)}
        assert not shown["is_genuine"](b"key-1", later, one.body)


def test_a_message_of_yesterday_is_a_replay() -> None:
    shown: dict[str, Any] = {}
    snippet = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert snippet
    exec(snippet.group(1), shown)  # noqa: S102
    moment = str(int(time.time()) - 86400)
    signed = "sha256=" + hmac.new(b"key", moment.encode() + b".{}", hashlib.sha256).hexdigest()
    headers = {"X-Oarlock-Timestamp": moment, "X-Oarlock-Signature": signed}
    assert not shown["is_genuine"](b"key", headers, b"{}")


def test_an_answer_that_drips_in_is_cut_off(inbox: Inbox) -> None:
    inbox.answers.drip = True
    answer = post(inbox.url, seconds=0.3)
    assert answer.status is None
    assert answer.worth_another_try
    eventually(lambda: inbox.cut, "the receiver to see the connection gone")


def test_no_answer_is_waited_for_longer_than_its_time(inbox: Inbox) -> None:
    inbox.answers.open.clear()
    answer = post(inbox.url, seconds=0.2)
    assert (answer.status, answer.words) == (None, "it took too long")


@pytest.mark.parametrize(
    "said",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"],
)
def test_whatever_a_receiver_answers_is_an_answer_and_no_exception(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        port = server.getsockname()[1]
        sender = Sender(receiver_of(Webhook(name="odd", url=f"http://127.0.0.1:{port}/secret"), {}), patience=QUICK)
        sender.put(message())
        for _ in range(QUICK.tries):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
        assert delivered(sender, 1) == Tally(lost=1)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A certificate of localhost that only itself vouches for, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "localhost.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def secure_inbox(authority: Path) -> Iterator[Inbox]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    server = Inbox(context)
    yield server
    server.end()


def test_https_is_spoken_with_a_receiver_whose_authority_is_known(
    secure_inbox: Inbox, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    sender = Sender(secure_inbox.receiver())
    sender.put(message("one"))
    sender.put(message("two"))
    assert delivered(sender, 2) == Tally(sent=2)
    assert secure_inbox.bodies == [b"one", b"two"]


def test_nothing_is_sent_to_a_receiver_whose_certificate_cannot_be_verified(secure_inbox: Inbox) -> None:
    answer = post(secure_inbox.url)
    assert answer.status is None
    assert not secure_inbox.received


def test_nothing_is_sent_under_another_name_than_the_certificate_s(
    secure_inbox: Inbox, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    answer = post(f"https://127.0.0.1:{secure_inbox.port}/x")
    assert answer.status is None
    assert not secure_inbox.received


def test_no_log_line_holds_an_address_s_path_a_token_or_a_key(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"OARLOCK_SECRET_U": f"{inbox.url}/hook-secret", "OARLOCK_SECRET_T": "tok-secret"}
    webhook = Webhook(
        name="chat",
        type=WebhookType.DISCORD,
        url_variable="OARLOCK_SECRET_U",
        auth_variable="OARLOCK_SECRET_T",
        signature_variable="OARLOCK_SECRET_T",
    )
    inbox.answer(404)
    with caplog.at_level(logging.DEBUG):
        for receiver in (
            receiver_of(webhook, environment),
            receiver_of(webhook, {**environment, "OARLOCK_SECRET_U": "http://127.0.0.1:9/hook-secret"}),
            receiver_of(webhook, {**environment, "OARLOCK_SECRET_U": "https://no-such-host.invalid/hook-secret"}),
        ):
            sender = Sender(receiver, patience=Patience(tries=2, first_delay=0.01), size=1)
            for _ in range(3):
                sender.put(message())
            eventually(lambda s=sender: s.tally.lost, "a message to be given up")
            finished(sender, within=2.0)
    assert "was not taken" in caplog.text
    assert "a message was dropped" in caplog.text
    everything = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "-secret" not in everything.replace("OARLOCK_SECRET", "")
