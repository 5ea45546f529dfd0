"""Lines of the story, under each Python that the agent may run on."""

from __future__ import annotations

from datetime import datetime

import pytest

from oarlock_trainer.agent.history import life


def test_seconds_are_told_by_a_python_that_does_not_know_the_z(monkeypatch: pytest.MonkeyPatch) -> None:
    class Python310(datetime):
        @classmethod
        def fromisoformat(cls, moment: str, /) -> datetime:  # type: ignore[override]
            if moment.endswith("Z"):
                raise ValueError(moment)
            return datetime.fromisoformat(moment)

    monkeypatch.setattr(life, "datetime", Python310)
    assert life._seconds("2026-01-01T00:00:00.000Z", "2026-01-01T00:01:30.500Z") == 90.5
