"""Our reader beside its peers: the same samples, each in its own format, in turns; see readers/.

Peers read with two worker processes, ours with eight threads in one process. All files were just read: what is compared
is the work of reading, not a disk. A round before the first is not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from data_report import Figures, quiet, report, watched

_SCRIPTS = Path(__file__).parent / "readers"
_PEERS = ("webdataset", "streaming", "litdata")


def measure(folder: Path, *, count: int, rounds: int, peers: Path | None) -> None:
    """One epoch of every reader, `rounds` times. Without `peers`, ours alone."""
    contenders = {"ours": (Path(sys.executable), _SCRIPTS / "ours.py")}
    contenders |= {name: (peers, _SCRIPTS / f"peer_{name}.py") for name in _PEERS if peers}
    for name, (python, script) in contenders.items():
        written = folder / f"{name}-{count}"
        if not written.exists():
            unfinished = written.with_suffix(".unfinished")
            unfinished.mkdir(parents=True)
            _call(python, script, "write", str(unfinished), str(count))
            unfinished.rename(written)
    measured: dict[str, list[Figures]] = {name: [] for name in contenders}
    for turn in range(-1, rounds):
        for name, (python, script) in contenders.items():
            figures: Figures = {}
            with watched(figures):
                said = _call(python, script, "read", str(folder / f"{name}-{count}"))
            found: dict[str, Any] = json.loads(said[said.rindex('{"samples"') :])
            if found["samples"] != count:
                raise SystemExit(f"{name} read {found['samples']} samples of {count}")
            figures["samples/s"] = found["samples"] / found["seconds"]
            figures["MB/s"] = found["bytes"] / found["seconds"] / 1e6
            figures["first batch, ms"] = found["first"] * 1000
            if turn >= 0:
                measured[name].append(figures)
    ours = statistics.median(one["MB/s"] for one in quiet(measured["ours"]))
    for figures in (one for some in measured.values() for one in some):
        figures["ours / this one"] = ours / figures["MB/s"]
    report("readers", measured)


def _call(python: Path, *arguments: str | Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([python, *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
