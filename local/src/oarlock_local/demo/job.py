"""A job as people watch it: its row whenever it changes, and what happened, with the time."""

# ruff: noqa: T201

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from oarlock_local.api import ApiServer
from oarlock_local.cluster import Cluster

COLUMNS = (
    ("NAME", 6),
    ("PHASE", 12),
    ("NODES", 7),
    ("STEP", 9),
    ("LOSS", 8),
    ("S/STEP", 8),
    ("RESTARTS", 9),
    ("AGE", 5),
)
POLL_SECONDS = 0.1
ROW_SECONDS = 2.0
STUCK_SECONDS = 120.0


class Disappointed(Exception):  # noqa: N818 - the word for a demo that did not hold
    """Something that the demo promises did not come true."""


class JobView:
    """One TrainingJob, polled through the API."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._api = ApiServer(cluster.kubeconfig)
        self._path = f"/apis/oarlock.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}"
        self._raw: dict[str, Any] = {}
        self._shown = ""
        self._shown_at = 0.0
        self._live = sys.stdout.isatty()

    def __enter__(self) -> Self:
        self._api.__enter__()
        print("".join(f"{title:<{width}} " for title, width in COLUMNS).rstrip())
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live:
            print()
        self._api.__exit__(*failure)

    @property
    def status(self) -> dict[str, Any]:
        """The status as last read."""
        return self._raw.get("status") or {}

    def attempt(self, number: int) -> dict[str, Any]:
        """An attempt's record."""
        found: dict[str, Any] = next(a for a in self.status["attempts"] if a["number"] == number)
        return found

    def seconds_since_creation(self) -> float:
        """Age of the job."""
        made = datetime.fromisoformat(self._raw["metadata"]["creationTimestamp"])
        return (datetime.now(UTC) - made).total_seconds()

    def follow(self, until: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Show the job until a condition on its status holds.

        Raises Disappointed where the job ends before, or nothing of its status changes for a long while: a slow machine
        is no disappointment.
        """
        changed = time.monotonic()
        while True:
            before, self._raw = self.status, self._api.get(self._path)
            self._show()
            if until(self.status):
                return
            if "completionTime" in self.status:
                ended = f"{self.status['phase']}: {self.status.get('reason')}: {self.status.get('message')}"
                raise Disappointed(f"the job ended before {what} came: {ended}")
            if self.status != before:
                changed = time.monotonic()
            elif time.monotonic() - changed > STUCK_SECONDS:
                raise Disappointed(
                    f"waiting for {what}, nothing changed for {STUCK_SECONDS:.0f} s; the job: {self._row()}"
                )
            time.sleep(POLL_SECONDS)

    def note(self, words: str) -> None:
        """Something that happened."""
        if self._live:
            print()
        print(f" {datetime.now().astimezone():%H:%M:%S}  {words}", flush=True)
        self._shown = ""

    def _show(self) -> None:
        """The row: drawn over on a terminal, else a line for each new phase and every other second."""
        row = self._row()
        changed = row[:20] != self._shown[:20]
        due = time.monotonic() - self._shown_at > ROW_SECONDS
        if row == self._shown or not (self._live or changed or due):
            return
        if self._live:
            print(f"\r{row}\x1b[K", end="", flush=True)
        else:
            print(row, flush=True)
        self._shown, self._shown_at = row, time.monotonic()

    def _row(self) -> str:
        status = self.status
        progress, summary = status.get("progress") or {}, status.get("summary") or {}
        cells = (
            self._raw["metadata"]["name"],
            status.get("phase", ""),
            summary.get("nodes", ""),
            summary.get("step", ""),
            _number(progress.get("loss"), "{:.4f}"),
            _number(progress.get("secondsPerStep"), "{:.3f}"),
            str(status.get("restartCount", 0)),
            f"{self.seconds_since_creation():.0f}s",
        )
        return "".join(f"{cell:<{width}} " for cell, (_, width) in zip(cells, COLUMNS, strict=True)).rstrip()


def _number(value: float | None, pattern: str) -> str:
    return pattern.format(value) if value is not None else ""
