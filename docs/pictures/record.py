"""Runs the demo and keeps what it printed for the documentation's picture of it: `python docs/pictures/record.py`.

Of the job's table, which has a line every two seconds, the first of each phase and every fifth line are kept, and paths lose
what is this machine's; nothing else is changed. `draw.py` draws the picture from the file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDED = HERE / "demo.txt"
ROW = "flux "
EVERY = 5


def thinned(lines: list[str]) -> list[str]:
    """The lines without most of those that only say that time passed."""
    kept: list[str] = []
    phase, since = "", 0
    for line in lines:
        if not line.startswith(ROW):
            kept.append(line)
            continue
        now = " ".join(line.split()[1:3])
        since = 0 if now != phase else since + 1
        phase = now
        if since % EVERY == 0:
            kept.append(line)
    return kept


def main() -> int:
    """The demo's exit code; the file is written where it ended well."""
    demo = [sys.executable, "-m", "oarlock_local.demo"]
    printed: list[str] = []
    with subprocess.Popen(demo, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            printed.append(line.rstrip("\n").replace(f"{ROOT}/", "").replace(str(Path.home()), "~"))
    if process.returncode == 0:
        RECORDED.write_text("\n".join(["$ make demo", *thinned(printed)]) + "\n")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
