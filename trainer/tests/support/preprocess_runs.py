"""Preprocessing by real ranks, in a process that has torch and the encoders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


@dataclass
class Preprocess:
    """Runs ranks in a process that has torch and the encoders; this one stays without."""

    process: subprocess.Popen[str]
    model: Path
    pictures: Path
    count: int = 96

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
        assert self.process.stdin
        assert self.process.stdout
        body = {"training": training or self.training(), "output": str(output), "ranks": ranks} | order
        self.process.stdin.write(json.dumps(body) + "\n")
        self.process.stdin.flush()
        meanwhile(json.loads(self.process.stdout.readline()))
        answer: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return answer
