"""An API server that is away, unwell, slow or odd, by a proxy before a real one: the operator lives, and goes on."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_proxy import ApiProxy
from gangs import JOBS, LEASE, SETTINGS, Gang
from processes import Api, operator

from oarlock_local import patience
from oarlock_local.patience import eventually

pytestmark = pytest.mark.cluster

BRIEFLY = ("--lease-seconds", "6", "--progress-seconds", "1")
"""An outage of four seconds costs the Lease."""


@pytest.fixture
def proxy(as_operator: Path, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy(as_operator, tmp_path / "proxied") as proxy:
        yield proxy


def lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def said(log: Path, event: str) -> int:
    return sum(line.get("event") == event for line in lines(log))


@pytest.mark.parametrize("away", [ApiProxy.refuse, ApiProxy.hang], ids=["503", "silence"])
def test_an_outage_ends_the_work_and_not_the_process_and_afterwards_it_is_looked_at_what_is_there(
    api: Api, proxy: ApiProxy, tmp_path: Path, away: Callable[[ApiProxy], None]
) -> None:
    log = tmp_path / "operator.log"
    with operator(proxy.kubeconfig, log, *BRIEFLY):
        gang, doomed = Gang(api), Gang(api)
        gang.run()
        doomed.run()
        led = said(log, "leading")
        away(proxy)
        eventually(lambda: said(log, "all work has ended") or None, "the end of the term")
        before = len(proxy.writes())
        gang.end("1-0", 1, "ValueError: x")
        api.call("DELETE", f"{JOBS}/{doomed.name}")
        eventually(lambda: len(proxy.asked) > before + 3 or None, "requests in vain")
        assert sorted(gang.pods()) == ["1-0", "1-1"], "training goes on"
        proxy.heal()
        gang.run(2)
        assert gang.status["restarts"]["application"] == 1
        assert said(log, "leading") > led
        assert f"{doomed.name}-2" not in str(proxy.writes())


def test_watches_that_end_with_errors_of_the_server_s_own_are_begun_anew(
    api: Api, proxy: ApiProxy, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    with operator(proxy.kubeconfig, log, *SETTINGS):
        kinds = ("trainingjobs", "pods", "nodes")
        eventually(lambda: all(proxy.watched(kind) for kind in kinds) or None, "all watches")
        proxy.break_watches()
        eventually(lambda: all(proxy.watched(kind) > 2 for kind in kinds) or None, "some more")
        gang = Gang(api)
        proxy.heal()
        gang.run()
        before = {kind: proxy.watched(kind) for kind in kinds}
        gang.end("1-0", 1, "ValueError: x")
        gang.run(2)
        assert before["pods"] >= 3
        assert said(log, "leading") == 1, "the Lease was never in doubt"


@pytest.mark.deep
def test_an_api_server_that_takes_two_seconds_for_an_answer_is_worked_with(
    api: Api, proxy: ApiProxy, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    proxy.slow_down(2.0)
    with operator(proxy.kubeconfig, log, *SETTINGS):
        gang = Gang(api)
        eventually(lambda: sorted(gang.pods()) == ["1-0", "1-1"] or None, "its pods")
        assert said(log, "leading") == 1


def test_a_start_without_an_api_server_waits_for_it_alive_and_says_for_what(
    api: Api, proxy: ApiProxy, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    proxy.refuse()
    with operator(proxy.kubeconfig, log, *BRIEFLY):
        eventually(lambda: said(log, "waiting to start") > 1 or None, "a try")
        (port,) = [line["port"] for line in lines(log) if line.get("event") == "serving"]
        assert asked(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")
        code, words = asked(f"http://127.0.0.1:{port}/readyz")
        assert (code, "ServiceUnavailable" in words) == (503, True)
        proxy.heal()
        Gang(api).wait_for_pods("1-0", "1-1")
        assert asked(f"http://127.0.0.1:{port}/readyz") == (200, "ok\n")


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=patience.SECONDS) as answer:  # noqa: S310 - a loopback address
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_leader_that_was_frozen_between_status_and_actions_writes_nothing_when_it_wakes(
    api: Api, proxy: ApiProxy, as_operator: Path, tmp_path: Path
) -> None:
    log, other = tmp_path / "frozen.log", tmp_path / "other.log"
    with operator(proxy.kubeconfig, log, *BRIEFLY) as frozen:
        eventually(lambda: said(log, "leading") or None, "a leader")
        held = proxy.hold("PUT", "/status")
        gang = Gang(api)
        assert held.done.wait(patience.SECONDS)
        frozen.send_signal(signal.SIGSTOP)
        held.release()
        with operator(as_operator, other, *BRIEFLY):
            eventually(lambda: said(other, "leading") or None, "another leader")
            gang.run()
            gang.end("1-0", 1, "ValueError: x")
            gang.run(2)
            before, passes = proxy.writes(), said(log, "pass failed")
            frozen.send_signal(signal.SIGCONT)
            eventually(lambda: said(log, "all work has ended") or None, "its end of work")
            eventually(lambda: said(log, "waiting for the Lease") or None, "its place in the queue")
            assert proxy.writes() == before
            assert said(log, "pass failed") >= passes
            holder = api.call("GET", LEASE)["spec"]["holderIdentity"]
            assert holder.rpartition("-")[2] != str(frozen.pid)
            assert sorted(gang.pods())[-2:] == ["2-0", "2-1"]
