"""A monitor's process over pretended GPUs, for tests of what it tells."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_local import nvml, patience
from oarlock_trainer.health import messages
from oarlock_trainer.health.messages import Line, News

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.health.symptom import Symptom


_TEN_TIMES_AS_FAST = (Path(__file__).parent / "hurried_monitor.py").read_text()


class Monitored:
    """A monitor over pretended GPUs."""

    def __init__(self, folder: Path) -> None:
        self.library = nvml.install(folder)
        self.gpus = nvml.Control(folder)
        self.gpus.set("gpus=2")
        self.environment = {**os.environ, "NVML_LIBRARY": str(self.library)}
        self._readable, self._writable = os.pipe()
        self._pending = b""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, expected: int = 2, program: str = _TEN_TIMES_AS_FAST) -> None:
        command = [sys.executable, "-c", program, "--told", str(self._writable)]
        command += ["--parent", str(os.getpid()), "--expected", str(expected)]
        self.process = subprocess.Popen(command, env=self.environment, pass_fds=[self._writable])

    def until(self, fits: Callable[[Line], bool]) -> Line:
        deadline = time.monotonic() + patience.SECONDS
        while (left := deadline - time.monotonic()) > 0:
            *lines, self._pending = self._pending.split(b"\n")
            for number, line in enumerate(lines):
                if (said := messages.decode(line)) and fits(said):
                    self._pending = b"\n".join([*lines[number + 1 :], self._pending])
                    return said
            if select.select([self._readable], [], [], left)[0]:
                self._pending += os.read(self._readable, 65536)
        raise AssertionError("the monitor did not tell it in time")

    def watching(self, program: str = _TEN_TIMES_AS_FAST) -> None:
        self.start(program=program)
        self.until(lambda line: line.news is News.BEAT)

    def symptom(self) -> Symptom:
        found = self.until(lambda line: line.news is News.SYMPTOM).symptom
        assert found is not None
        return found

    def stays_silent_for(self, rounds: int) -> bool:
        rounds_and_symptoms = (News.BEAT, News.BLIND, News.SYMPTOM)
        told = (self.until(lambda line: line.news in rounds_and_symptoms) for _ in range(rounds))
        return all(line.symptom is None for line in told)

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        os.close(self._readable)
        os.close(self._writable)
