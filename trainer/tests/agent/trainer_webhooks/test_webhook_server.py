"""/webhook on the status port: for the trainer of a job's own, from the pod itself, a short body at a time."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from oarlock_api.contract.status import PodStatus
from oarlock_local import patience
from oarlock_trainer.agent.status.access import is_here
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
from oarlock_trainer.agent.trainer_webhooks.payloads import Step

STEP = json.dumps({"type": "training.progress", "progress": {"current": 3}}).encode()


def status() -> PodStatus:
    return PodStatus(job_uid="u", pod_uid="p", attempt=1, rank=0, phase="Starting", heartbeat_at="2026-01-01T00:00:00Z")


def serve(inbox: Inbox | None) -> int:
    return StatusServer(port=0, job="flux", status=status, alive=lambda: True, inbox=inbox).port


def post(
    port: int, body: bytes, *, path: str = "/webhook", host: str = "127.0.0.1", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=patience.SECONDS)
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_what_a_trainer_posts_is_handed_over() -> None:
    inbox = Inbox()
    assert post(serve(inbox), STEP) == (200, b"taken\n")
    assert inbox.take() == [Step(step=3)]


@pytest.mark.parametrize(
    ("body", "path", "answer"),
    [
        pytest.param(b"nonsense", "/webhook", (400, b"refused\n"), id="no JSON"),
        pytest.param(b'{"type": "telemetry"}', "/webhook", (200, b"ignored\n"), id="unknown type"),
        pytest.param(b"x" * 65537, "/webhook", (413, b"64 KiB at most\n"), id="too long"),
        pytest.param(STEP, "/status", (501, b"nothing is taken here\n"), id="another path"),
    ],
)
def test_what_is_not_taken_gets_its_answer(body: bytes, path: str, answer: tuple[int, bytes]) -> None:
    inbox = Inbox()
    assert post(serve(inbox), body, path=path) == answer
    assert inbox.take() == []


def test_a_body_of_unknown_length_is_not_read() -> None:
    with socket.create_connection(("127.0.0.1", serve(Inbox())), timeout=patience.SECONDS) as client:
        client.sendall(b"POST /webhook HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b" 411 " in client.recv(4096)


def test_a_job_with_the_built_in_trainer_has_no_such_place() -> None:
    assert post(serve(None), STEP)[0] == 501


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", False),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_the_pod_itself_is_here(host: str, here: bool) -> None:  # noqa: FBT001
    assert is_here(host) is here


def test_others_are_sent_away_unheard() -> None:
    """This machine's own address is not its loopback's: seen from the server, a neighbour posts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        own = probe.getsockname()[0]
    inbox = Inbox()
    assert post(serve(inbox), STEP, host=own) == (403, b"only from this pod itself\n")
    assert inbox.take() == []


def test_metrics_count_what_was_received() -> None:
    port = serve(Inbox())
    post(port, STEP)
    post(port, b"{}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience.SECONDS)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    assert "# TYPE oarlock_trainer_reports_total counter" in text
    assert 'oarlock_trainer_reports_total{rank="0",reception="taken",training_job="flux"} 1.0' in text
    assert 'oarlock_trainer_reports_total{rank="0",reception="ignored",training_job="flux"} 1.0' in text
