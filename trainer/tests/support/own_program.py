"""Programs of somebody else's for tests of spec.custom: they know nothing of Oarlock, one function each.

    python own_program.py FUNCTION

They leave files in the folder that SCRATCH names, so that tests wait for facts. None of them outlives a test for long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from agent_process import lives

from oarlock_local import patience

SCRATCH = Path(os.environ.get("SCRATCH", "/nonexistent"))


def leave(name: str, content: object = "") -> None:
    fresh = SCRATCH / f".{name}.new"
    fresh.write_text(str(content))
    fresh.rename(SCRATCH / name)


def wait_for(name: str) -> None:
    while not (SCRATCH / name).exists():
        time.sleep(0.005)


def tells_what_it_was_given() -> int:
    leave("given", json.dumps({"arguments": sys.argv[2:], "folder": str(Path.cwd()), "environment": dict(os.environ)}))
    return 0


def fails_as_pytorch_does() -> int:
    sys.stderr.write("[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: the loss is not a number\n")
    sys.stderr.write("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n")
    return 3


def blames_its_gpu() -> int:
    leave("running", os.getpid())
    wait_for("fail")
    sys.stderr.write("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    return 1


def runs() -> int:
    leave("running", os.getpid())
    wait_for("finish")
    return 0


def wait_to_be_asked() -> None:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    leave("running", os.getpid())
    while not asked:
        time.sleep(0.005)


def saves_when_asked() -> int:
    wait_to_be_asked()
    leave("saved")
    return 0


def launches_one_that_saves() -> int:
    """A launcher that does not pass signals on, and dies of them at once."""
    own = subprocess.Popen([sys.executable, __file__, "saves_slowly"])
    return own.wait()


def launches_one_that_saves_in_another_session() -> int:
    """As SimpleTuner's command line does: what it starts is out of its process group's reach."""
    own = subprocess.Popen([sys.executable, __file__, "saves_slowly"], start_new_session=True)
    return own.wait()


def saves_slowly() -> int:
    wait_to_be_asked()
    leave("saving")
    wait_for("storage-is-back")
    leave("saved")
    return 0


def saves_if_its_worker_lives() -> int:
    """A worker as PyTorch's data loader forks them: it knows no signals, and its program fails when it is ended."""
    asked: list[int] = []
    worker = os.fork()
    if worker == 0:
        return runs_until_signalled()
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    leave("running", os.getpid())
    while not asked:
        time.sleep(0.005)
    leave("saving")
    wait_for("storage-is-back")
    if os.waitpid(worker, os.WNOHANG) == (0, 0):
        leave("saved")
    os.kill(worker, signal.SIGKILL)
    return 0


def launches_a_part_that_saves() -> int:
    """A launcher that forks its only rank and dies of the signal."""
    if os.fork() == 0:
        return saves_slowly()
    return runs_until_signalled()


def launches_an_orphan_that_saves() -> int:
    if os.fork() == 0:
        return 0 if os.fork() else saves_slowly()
    return runs_until_signalled()


def runs_until_signalled() -> int:
    while True:
        signal.pause()


def leaves_one_behind() -> int:
    other = subprocess.Popen([sys.executable, __file__, "runs_for_ever"], start_new_session=True)
    leave("left", other.pid)
    return int(sys.argv[2]) if sys.argv[2:] else 0


def runs_in_rounds() -> int:
    """A launcher, its rank, and a daemon that has left their session; it notes whether the last round's daemon lives."""
    number = int(os.environ["OARLOCK_ROUND"])
    last = SCRATCH / f"daemon-{number - 1}"
    if last.exists() and lives(int(last.read_text())):
        leave("met-a-daemon")
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            return 0
        signal.alarm(int(patience.SECONDS))
        leave(f"daemon-{number}", os.getpid())
        return runs_for_ever()
    rank = subprocess.Popen([sys.executable, __file__, "runs_for_ever"])
    wait_for(f"daemon-{number}")
    leave(f"round-{number}", json.dumps([os.getpid(), rank.pid, int((SCRATCH / f"daemon-{number}").read_text())]))
    wait_for("finish")
    return 0


def fails_at_once() -> int:
    number = int(os.environ["OARLOCK_ROUND"])
    leave(f"round-{number}")
    if number == 1:
        sys.stderr.write("ValueError: of the first round\n")
    return 3


def fails_when_told() -> int:
    leave("running", os.getpid())
    wait_for("fail")
    return 3


def runs_for_ever() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(10)


if __name__ == "__main__":
    signal.alarm(int(patience.SECONDS))
    sys.exit(globals()[sys.argv[1]]())
