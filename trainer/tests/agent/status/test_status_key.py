"""/status of a gang with a key: for those who know it, and for the pod itself."""

from __future__ import annotations

import http.client
import time

import pytest

from oarlock_api.contract.gang_key import REFUSED, answered, question
from oarlock_api.contract.rounds import SurgePod
from oarlock_api.contract.status import PodStatus, parse_status
from oarlock_local import patience
from oarlock_trainer.agent.status import access
from oarlock_trainer.agent.status.access import StatusAccess
from oarlock_trainer.agent.status.status_server import StatusServer

KEY = b"k" * 32
STATUS = PodStatus(job_uid="u", pod_uid="p", attempt=1, rank=0, phase="Training", heartbeat_at="2026-01-01T00:00:00Z")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A status server that takes everybody for a stranger in the pod network, and has the time of 2026."""
    monkeypatch.setattr(access, "is_here", lambda _host: False)
    return StatusServer(
        port=0, job="flux", status=lambda: STATUS, alive=lambda: True, access=StatusAccess(KEY, STATUS.pod_uid)
    ).port


def get(port: int, target: str, *, host: str = "localhost") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience.SECONDS)
    connection.request("GET", target, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_whoever_signs_with_the_key_reads_the_status_and_knows_that_it_is_the_pods(port: int) -> None:
    target = question(KEY, "/status", pod_uid="p", now=time.time())
    code, said = get(port, target)
    assert code == 200
    assert parse_status(answered(KEY, target, said) or "") == STATUS
    assert answered(KEY, question(KEY, "/status", pod_uid="p", now=1.0), said) is None, "of another question"
    assert answered(KEY, target, said.replace('"attempt":1', '"attempt":2')) is None, "changed on its way"


def test_what_the_operator_says_of_surge_pods_is_heard_where_it_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "is_here", lambda _host: False)
    heard: list[object] = []
    server = StatusServer(
        port=0,
        job="flux",
        status=lambda: STATUS,
        alive=lambda: True,
        access=StatusAccess(KEY, STATUS.pod_uid),
        surge=lambda pods, _at: heard.append(pods),
    )
    for words in ("", "none", "1-2-150"):
        get(server.port, question(KEY, "/status", pod_uid="p", now=time.time(), surge=words))
    get(server.port, question(b"o" * 32, "/status", pod_uid="p", now=time.time(), surge="1-3-9"))
    assert heard == [(), (SurgePod(1, 2, 150),)]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/status", id="not signed"),
        pytest.param(question(b"o" * 32, "/status", pod_uid="p", now=time.time()), id="another key"),
        pytest.param(question(KEY, "/status", pod_uid="q", now=time.time()), id="for another pod"),
        pytest.param(question(KEY, "/metrics", pod_uid="p", now=time.time()).replace("metrics", "status"), id="path"),
        pytest.param(question(KEY, "/status", pod_uid="p", now=time.time() - 3600), id="of an hour ago"),
        pytest.param("/status?at=x&proof=%ff", id="nonsense"),
        pytest.param("/status?at=" + "9" * 5000, id="endless"),
    ],
)
def test_a_stranger_is_told_nothing_but_that_there_is_a_key(port: int, target: str) -> None:
    assert get(port, target) == (403, REFUSED)


def test_a_person_is_told_who_may_ask_and_where_the_same_facts_are() -> None:
    assert "kubectl port-forward" in REFUSED
    assert "kubectl get tj JOB" in REFUSED
    assert len(REFUSED) < 500, "what the operator keeps of an answer"


def test_the_kubelet_and_prometheus_need_no_key(port: int) -> None:
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/metrics")[0] == 200


def test_the_pod_itself_needs_no_key() -> None:
    own = StatusServer(
        port=0, job="flux", status=lambda: STATUS, alive=lambda: True, access=StatusAccess(KEY, "p")
    ).port
    code, said = get(own, "/status")
    assert (code, parse_status(said)) == (200, STATUS)
    assert get(own, "/status", host="evil.example:9400") == (403, REFUSED), "a site whose name leads to 127.0.0.1"


@pytest.mark.parametrize("asked", ["localhost:9400", "127.0.0.1:9400", "10.0.0.7:9400", "[fd00::7]:9400", ""])
def test_of_a_gang_without_a_key_whoever_reaches_it_by_its_address_reads_the_status(asked: str) -> None:
    assert StatusAccess().answer("/status", "127.0.0.1", asked, "said") == "said"


def test_a_site_whose_name_leads_to_a_forwarded_port_is_told_nothing_of_a_gang_without_a_key() -> None:
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert StatusAccess().answer("/status", host, "evil.example:9400", "said") is None


def test_a_site_whose_name_leads_to_a_forwarded_port_reads_no_metrics() -> None:
    own = StatusServer(port=0, job="flux", status=lambda: STATUS, alive=lambda: True).port
    assert get(own, "/metrics", host="evil.example:9400")[0] == 403
    assert get(own, "/metrics", host="10.0.0.7:9400")[0] == 200
    assert get(own, "/healthz", host="evil.example:9400")[0] == 200, "which tells nothing"


def test_the_api_server_hands_its_own_name_on_when_it_asks_for_the_operator() -> None:
    assert StatusAccess().answer("/status", "10.0.0.1", "cluster.example.com:6443", "said") == "said"
