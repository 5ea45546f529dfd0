"""Preprocessing by real ranks, in a fork that has torch and the encoders (preprocess_ranks.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from forked import Forks


class Preprocess:
    """Runs ranks, which this process knows nothing of."""

    count = 96
    """Pictures that a job has unless it says otherwise."""

    def __init__(self, forks: Forks, model: Path, pictures: Path) -> None:
        self.model, self.pictures = model, pictures
        theirs, self._orders = os.pipe()
        answers, told = os.pipe()
        self._answers = os.fdopen(answers, encoding="utf-8")
        self._ranks = forks.start(Path(__file__).with_name("preprocess_ranks.py"), streams=(theirs, told, 2))
        os.close(theirs)
        os.close(told)

    def close(self) -> None:
        """End the process once its last order is done."""
        os.close(self._orders)
        self._ranks.wait()
        self._answers.close()

    def training(self, data: dict[str, Any] | None = None, **dataset: Any) -> dict[str, Any]:
        own = {"name": "photos", "source": {"path": str(self.pictures)}} | dataset
        return {
            "model": {"family": "Flux1", "path": str(self.model)}, "task": "Preprocess", "resolution": 64,
            "data": {"datasets": [own]} | (data or {}),
        }  # fmt: skip

    def __call__(
        self,
        output: Path,
        training: dict[str, Any] | None = None,
        *,
        ranks: int = 1,
        meanwhile: Callable[[list[int]], None] = lambda _: None,
        **order: Any,
    ) -> list[dict[str, Any]]:
        """Run all ranks to their end; `meanwhile` gets their pids while they run."""
        body = {"training": training or self.training(), "output": str(output), "ranks": ranks} | order
        os.write(self._orders, json.dumps(body).encode() + b"\n")
        meanwhile(self._answer())
        found: list[dict[str, Any]] = self._answer()
        return found

    def _answer(self) -> Any:
        line = self._answers.readline()
        assert line, "the process that forks the ranks died"
        return json.loads(line)
