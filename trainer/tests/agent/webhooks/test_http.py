"""What goes over the wire: to whom, under which headers, for how long, and to nobody else."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from webhook_inbox import KEY_REF, QUICK, TOKEN_REF, Inbox, delivered, message, variable

from oarlock_api.contract.sections import Webhook
from oarlock_local.patience import eventually
from oarlock_trainer.agent.webhooks.delivery import Post, address_of
from oarlock_trainer.agent.webhooks.receivers import receiver_of
from oarlock_trainer.agent.webhooks.sender import Sender, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.agent.webhooks.delivery import Answer

DOCS = Path(__file__).parents[4] / "docs/webhooks.md"


def post(url: str, seconds: float = 5.0) -> Answer:
    return Post(address_of(url), seconds=seconds)(b"{}", {"Content-Type": "application/json"}, now=time.time())


def test_a_redirect_is_not_followed_so_that_no_token_goes_elsewhere(inbox: Inbox) -> None:
    inbox.answer(307, Location=f"{inbox.url}/elsewhere")
    environment = {variable(TOKEN_REF): "token"}
    sender = Sender(inbox.receiver("/hook", environment, auth_secret_ref=TOKEN_REF), retries=QUICK)
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
    environment = {variable(TOKEN_REF): "token-1\n"}
    sender = Sender(inbox.receiver("/hook", environment, auth_secret_ref=TOKEN_REF))
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
    environment = {variable(KEY_REF): "key-1"}
    sender = Sender(inbox.receiver("/hook", environment, signature_secret_ref=KEY_REF), retries=QUICK)
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
        sender = Sender(receiver_of(Webhook(name="odd", url=f"http://127.0.0.1:{port}/secret"), {}), retries=QUICK)
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
