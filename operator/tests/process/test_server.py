"""/healthz, /readyz and /metrics, over a real socket."""

from __future__ import annotations

import aiohttp
import pytest

from oarlock_operator import metrics
from oarlock_operator.process.server import serving


async def fetch(port: int, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_healthz_fails_with_its_reason_as_soon_as_something_is_wrong_and_mends_with_it() -> None:
    wrong: list[str | None] = [None, "no resync finished for 700 s", None]
    async with serving(host="127.0.0.1", port=0, health=lambda: wrong.pop(0)) as port:
        assert (await fetch(port, "/healthz"))[:2] == (200, "ok\n")
        assert (await fetch(port, "/healthz"))[:2] == (500, "no resync finished for 700 s\n")
        assert (await fetch(port, "/healthz"))[:2] == (200, "ok\n")


async def test_readyz_stays_ready_while_it_waits_its_turn_or_is_unhealthy() -> None:
    async with serving(host="127.0.0.1", port=0, health=lambda: "broken") as port:
        assert (await fetch(port, "/readyz"))[0] == 200


async def test_metrics_are_told_in_prometheus_text() -> None:
    metrics.api_call("GET", 200)
    metrics.RESTARTS.labels(budget="application", reason="Hang").inc()
    async with serving(host="127.0.0.1", port=0, health=lambda: None) as port:
        status, body, kind = await fetch(port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    assert 'oarlock_api_calls_total{code="200",verb="GET"}' in body
    assert 'oarlock_restarts_total{budget="application",reason="Hang"}' in body
    assert "process_resident_memory_bytes" in body


async def test_nothing_listens_any_more_when_the_process_is_done_with_it() -> None:
    async with serving(host="127.0.0.1", port=0, health=lambda: None) as port:
        pass
    with pytest.raises(aiohttp.ClientConnectorError):
        await fetch(port, "/healthz")


async def test_a_port_that_is_taken_ends_the_start() -> None:
    async with serving(host="127.0.0.1", port=0, health=lambda: None) as port:
        with pytest.raises(OSError, match="address already in use"):
            async with serving(host="127.0.0.1", port=port, health=lambda: None):
                pass
