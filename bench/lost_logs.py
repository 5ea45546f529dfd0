"""What a node that dies takes with it: how old the last line is that the output has of a log, at the moment of the death.

    .venv/bin/python bench/lost_logs.py [--nodes 12]

Each node is an agent with a rank that prints a line every tenth of a second. At a moment of its own, within twenty seconds
after the first twenty, all its processes are killed at once. What it had handed to the storage by then is told from its
kept log; each append was synced, so it survives a power cut as well. Writes bench/results/lost_logs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from history import agent

from oarlock.kept_logs import read
from oarlock.logs import LINE, Wanted

RESULTS = Path(__file__).parent / "results" / "lost_logs.json"
FIRST, SPAN = 20.0, 20.0
"""Seconds: until the first node dies, and until the last one does after that."""


def main() -> None:
    """Let nodes die."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12)
    nodes = parser.parse_args().nodes
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(nodes)]
        agents = []
        for folder in folders:
            agents.append(agent(folder, "lost_logs:rank", {}, history={}, ranks=1))
            stack.callback(_end, agents[-1])
        for folder in folders:
            while not list(folder.glob("output/.oarlock/history/logs/*/*.gz")):
                time.sleep(0.1)
        time.sleep(FIRST)
        lost = []
        for folder, process in zip(folders, agents, strict=True):
            died = datetime.now(UTC)
            _end(process)
            *_, last = (line for line in read(folder / "output", Wanted(rank=0)) if line.kind == LINE)
            lost.append((died - datetime.fromisoformat(last.time)).total_seconds())
            time.sleep(SPAN / nodes)
    print(
        f"{nodes} nodes died, and took {statistics.median(lost):.1f} s ({min(lost):.1f}-{max(lost):.1f}) of their logs"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"lostSeconds": lost}, indent=1) + "\n")


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Kill an agent that still runs and all below it, also what has a session of its own."""
    if agent.poll() is not None:
        return
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        below.setdefault(parent, []).append(int(stat.parent.name))
    dying = [agent.pid]
    for one in dying:
        dying += below.get(one, [])
    for one in dying:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    agent.wait()


def rank() -> int:
    """What the rank does: print what time it is until it is killed."""
    while True:
        sys.stdout.write(f"{time.time()}\n")
        sys.stdout.flush()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
