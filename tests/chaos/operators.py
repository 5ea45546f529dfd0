"""The operator as two processes, which are killed, frozen and ended at random, and started again as a Deployment would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from oarlock_local.processes import start_logged

LEASE_SECONDS = 15
WINDOW_SECONDS = 60
MOST_CORDONS = 4
BELIEVED = "registry.example.com/"
"""What images begin with whose word may cordon a node, also under spec.custom."""
ARGUMENTS = {
    "port": 0,
    "pod-access": "direct",
    "lease-namespace": "default",
    "lease-seconds": LEASE_SECONDS,
    "progress-seconds": 2,
    "resync-seconds": 30,
    "trainer-image": "registry.example.com/trainer:1",
    # The shortest window and many cordons in it: what is looked for is cordons, not brakes.
    "cordon-window-seconds": WINDOW_SECONDS,
    "cordon-max-nodes": MOST_CORDONS,
    "cordon-max-percent": 20,
    "cordon-namespace-max-nodes": MOST_CORDONS,
    "cordon-namespace-max-percent": 20,
    "cordon-images": f'["{BELIEVED}"]',
}


@dataclass(slots=True)
class Process:
    """One of them. `until`: when it is started again, or thawed."""

    name: str
    running: subprocess.Popen[bytes] | None = None
    frozen: bool = False
    until: float = 0.0
    disturbed: float = 0.0
    """When something was done to it last: one that ends long after that has ended by itself."""


@dataclass(slots=True)
class Operators:
    """Both of them."""

    kubeconfig: Path
    folder: Path
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    processes: list[Process] = field(default_factory=lambda: [Process("a"), Process("b")])
    complaints: list[str] = field(default_factory=list)
    """Processes that ended by themselves, in words."""

    def tend(self) -> None:
        """Start those whose time has come, thaw others, and note which ended by themselves."""
        now = time.monotonic()
        for each in self.processes:
            if each.running is not None and each.running.poll() is not None:
                self._note_end(each, now)
            if now < each.until:
                continue
            if each.frozen and each.running is not None:
                each.running.send_signal(signal.SIGCONT)
                each.frozen, each.disturbed = False, now
            if each.running is None:
                each.running, each.disturbed = self._start(each), now

    def disturb(self) -> str:
        """Kill, freeze or end one of them; what was done, in words."""
        living = [each for each in self.processes if each.running is not None and not each.frozen]
        if not living:
            return ""
        each, now = self.chance.choice(living), time.monotonic()
        assert each.running is not None
        each.disturbed = now
        what = self.chance.choice(("kill", "kill", "freeze", "freeze", "end"))
        self.counts[what] += 1
        if what == "freeze":
            each.running.send_signal(signal.SIGSTOP)
            each.frozen, each.until = True, now + self.chance.uniform(0.5, 1.6 * LEASE_SECONDS)
        else:
            each.running.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            each.until = now + self.chance.uniform(0, 6)
        return f"{what} operator {each.name}"

    def calm(self) -> None:
        """Have both run."""
        for each in self.processes:
            each.until = 0.0
        self.tend()

    def stop(self) -> None:
        """End both for good."""
        for each in self.processes:
            if each.running is not None:
                each.running.kill()
                each.running.wait()

    def log_tail(self, lines: int = 15) -> str:
        """What both said last."""
        return "\n".join(
            f"-- operator {each.name}\n" + "\n".join(self._log(each).read_text().splitlines()[-lines:])
            for each in self.processes
        )

    def _log(self, each: Process) -> Path:
        return self.folder / f"operator-{each.name}.log"

    def _start(self, each: Process) -> subprocess.Popen[bytes]:
        self.counts["start"] += 1
        command = [sys.executable, "-m", "oarlock_operator", "--kubeconfig", str(self.kubeconfig)]
        command += [f"--{name}={value}" for name, value in ARGUMENTS.items()]
        environ = {key: "" for key in os.environ if key.startswith("OARLOCK_")}
        return start_logged(command, self._log(each), environ=environ)

    def _note_end(self, each: Process, now: float) -> None:
        """Who was killed ends; who was frozen has lost its Lease. Anybody else has failed."""
        assert each.running is not None
        code, each.running, each.frozen = each.running.returncode, None, False
        self.counts[f"exit {code}"] += 1
        said = self._log(each).read_text().splitlines()[-12:]
        lost = any("the Lease" in line for line in said)
        if code != 0 and not lost and now - each.disturbed > LEASE_SECONDS and code != -signal.SIGKILL:
            self.complaints.append(f"operator {each.name} ended by itself with {code}:\n" + "\n".join(said))
        each.until = max(each.until, now + 0.5)
