"""Training programs for tests of the agent: what a rank can do to its agent, one function each.

They find their scratch folder in SCRATCH and leave files there, so that tests wait for facts instead of for time.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

from oarlock_trainer.checkpoint.memory.held import FOLDER, RESUME_STEP, manifest_name
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import Event
from oarlock_trainer.runtime.stop import StopRequest

SCRATCH = Path(os.environ.get("SCRATCH", "/nonexistent"))


def _rank() -> int:
    return int(os.environ["RANK"])


def _leave_mark(name: str, content: object = "") -> None:
    fresh = SCRATCH / f".{name}.new"
    fresh.write_text(str(content))
    fresh.rename(SCRATCH / name)


def _wait_for(name: str) -> None:
    while not (SCRATCH / name).exists():
        time.sleep(0.005)


def _announce() -> None:
    _leave_mark(f"rank-{_rank()}", os.getpid())


def imports_nothing() -> None:
    pass


def slow_imports() -> None:
    _leave_mark("importing", os.getpid())
    _wait_for("imported")


def imports_fail() -> None:
    raise ImportError("libcudart.so.99 is missing")


def leaves_its_environment() -> int:
    gang = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    names = ("RANK", "LOCAL_RANK", *gang, "DS_ACCELERATOR", "OARLOCK_ROUND")
    _leave_mark(f"environment-{_rank()}", "\n".join(os.environ[name] for name in names))
    return 0


def trains_until_told() -> int:
    channel.send(Event.PHASE, name="Training")
    channel.send(Event.RESUMED, step=100)
    channel.send(Event.STEP, step=101, total=300, epoch=1, loss=0.5 + _rank(), learningRate=1e-5, secondsPerStep=0.25)
    channel.send(Event.CHECKPOINT, step=100, path="/output/x", savedAt="2026-01-01T00:00:00Z", stallSeconds=0.1)
    _leave_mark(f"round-of-{_rank()}", f"{os.environ.get('OARLOCK_TERM')} {os.environ['OARLOCK_ROUND']}")
    _announce()
    _wait_for("finish")
    return 0


def hangs_in_round_1() -> int:
    """It makes a step and then none. From the second round on it saves after that step, which may take long."""
    if os.environ["OARLOCK_ROUND"] == "1":
        return trains_until_told()
    channel.send(Event.RESUMED, step=100)
    channel.send(Event.STEP, step=101, total=300, epoch=1, loss=0.5, learningRate=1e-5, secondsPerStep=0.25)
    channel.send(Event.PHASE, name="Saving")
    _announce()
    _wait_for("finish")
    return 0


def comes_up_slowly_in_round_2() -> int:
    """It makes no step of that round before it is told to finish."""
    if os.environ["OARLOCK_ROUND"] == "1":
        return trains_until_told()
    _announce()
    _wait_for("finish")
    channel.send(Event.STEP, step=101, total=300, epoch=1, loss=0.5, learningRate=1e-5, secondsPerStep=0.25)
    return 0


def keeps_its_state() -> int:
    """In memory are the step after that which it goes on from, and of rank 0 the one after that as well."""
    folder, first = Path(os.environ[FOLDER]), int(os.environ.get(RESUME_STEP, "0"))
    folder.mkdir(exist_ok=True)
    for step in (first + 1, first + 2)[: 2 - _rank()]:
        (folder / manifest_name(step, _rank(), world=int(os.environ["WORLD_SIZE"]))).touch()
    channel.send(Event.PHASE, name="Training")
    channel.send(Event.RESUMED, step=first)
    channel.send(Event.STEP, step=first + 1, total=300, epoch=1, loss=0.5, learningRate=1e-5, secondsPerStep=0.25)
    _announce()
    _wait_for("finish")
    return 0


def storage_fails_when_told() -> int:
    _announce()
    _wait_for("fail")
    channel.send(Event.FAILURE, code=84, summary="no space left")
    return 84


def first_rank_fails() -> int:
    _announce()
    if _rank() == 0:
        _wait_for("rank-1")
        raise ValueError("the loss is not a number")
    _wait_for("report")
    _leave_mark("report-seen-alive")
    _wait_for("never")
    return 0


def fails_in_native_code() -> int:
    if _rank() == 0:
        raise RuntimeError(
            "No room left in the arena.\nException raised from get at /__w/arena.cpp:12 (most recent call first):\n"
            "frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7ffbe9d63bfd in libc10.so)\n"
        )
    return trains_until_told()


def blames_its_gpu() -> int:
    _announce()
    if _rank() == 1:
        _wait_for("fail")
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`.")
    _wait_for("never")
    return 0


def aborts_as_nccl_does() -> int:
    _announce()
    if _rank() == 1:
        os.write(2, b"[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\nterminate called\n")
        os.abort()
    _wait_for("never")
    return 0


def saves_on_demand() -> int:
    stop = StopRequest()
    _announce()
    while not stop.take_saving():
        time.sleep(0.005)
    _leave_mark(f"saved-{_rank()}")
    _wait_for("finish")
    return 0


def victim_before_culprit() -> int:
    _announce()
    if _rank() == 0:
        channel.send(Event.FAILURE, code=82, summary="connection closed by peer")
        return 82
    _wait_for("report")
    channel.send(Event.FAILURE, code=85, summary='dataset "photos" is empty')
    return 85


def culprit_after_its_victim() -> int:
    if _rank() == 0:
        channel.send(Event.FAILURE, code=82, summary="connection closed by peer")
        _leave_mark("victim")
        return 82
    _wait_for("victim")
    channel.send(Event.FAILURE, code=85, summary='dataset "photos" is empty')
    return 85


def only_a_victim() -> int:
    return 82 if _rank() == 0 else 0


def first_rank_is_killed() -> int:
    _announce()
    if _rank() == 0:
        _wait_for("rank-1")
        os.kill(os.getpid(), signal.SIGKILL)
    _wait_for("never")
    return 0


def says_why_and_hangs() -> int:
    _announce()
    if _rank() == 0:
        channel.send(Event.FAILURE, code=84, summary="no space left")
    _wait_for("never")
    return 0


def says_saved_and_hangs() -> int:
    channel.send(Event.FAILURE, code=86, summary="saved step 7 and left on request")
    _announce()
    _wait_for("never")
    return 0


def saves_when_asked() -> int:
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    channel.send(Event.STEP, step=7, total=100)
    _announce()
    while not asked:
        time.sleep(0.005)
    _leave_mark(f"saved-{_rank()}")
    return 86


def saves_when_told_to_finish() -> int:
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    channel.send(Event.STEP, step=7, total=100)
    _announce()
    while not asked:
        time.sleep(0.005)
    _leave_mark(f"asked-{_rank()}")
    _wait_for("finish")
    channel.send(Event.FAILURE, code=86, summary="saved step 7 and left on request")
    return 86


def never_leaves() -> int:
    signal.signal(signal.SIGTERM, lambda *_: _leave_mark(f"asked-{_rank()}"))
    _announce()
    _wait_for("never")
    return 0


def leaves_processes_behind() -> int:
    """One orphan ends at once and would stay a zombie, one would run for ever in a session of its own."""
    if _rank() == 0:
        for name, stays in (("short", False), ("long", True)):
            if os.fork() == 0:
                os.setsid()
                orphan = os.fork()
                if orphan == 0:
                    while stays:
                        time.sleep(10)
                    os._exit(0)
                _leave_mark(f"orphan-{name}", orphan)
                os._exit(0)
            os.wait()
    _announce()
    _wait_for("finish")
    return 0


def _step(step: int) -> None:
    channel.send(Event.STEP, step=step, total=100)


def _trains_five_steps() -> None:
    channel.send(Event.PHASE, name="Training")
    for step in range(1, 6):
        _step(step)


def stops_stepping() -> int:
    _trains_five_steps()
    _announce()
    if _rank() == 0:
        waits_for_its_peer()
    computes_for_ever()
    return 0


def hangs_and_reads_the_report() -> int:
    _trains_five_steps()
    report = SCRATCH / "report"
    while not report.exists() or not (text := report.read_text()):
        time.sleep(0.005)
    _leave_mark(f"report-seen-by-{_rank()}", text)
    _wait_for("never")
    return 0


def waits_for_its_peer() -> None:
    threading.Event().wait()


def computes_for_ever() -> None:
    while True:
        pass


def blocks_in_native_code() -> int:
    """Rank 1 sleeps in C and keeps the interpreter's lock, as a stuck driver call does; rank 0 has a second thread."""
    _trains_five_steps()
    _announce()
    if _rank() == 1:
        sleeps_with_the_lock()
    threading.Thread(target=waits_for_its_peer, daemon=True).start()
    sleeps_without_the_lock()
    return 0


def sleeps_without_the_lock() -> None:
    """One call and no loop of Python around it: whenever one looks, it is in this function."""
    time.sleep(600)


def sleeps_with_the_lock() -> None:
    ctypes.PyDLL(None).sleep(600)


def steps_for_ever() -> int:
    """Until it is asked to leave: then it hangs."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    channel.send(Event.PHASE, name="Training")
    for step in count(1):
        _step(step)
        if step == 1:
            _announce()
        if asked:
            _leave_mark(f"asked-{_rank()}")
            _wait_for("never")
        time.sleep(0.01)
    return 0


def steps_and_notes_when() -> int:
    with (SCRATCH / f"steps-{_rank()}").open("a") as steps:
        for step in count(1):
            steps.write(f"{time.time()}\n")
            steps.flush()
            _step(step)
            if step == 1:
                _announce()
            time.sleep(0.01)
    return 0


def records_collectives() -> int:
    """What torch's flight recorder does with its variables."""
    pipe = Path(os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + f"{_rank()}.pipe")
    os.mkfifo(pipe)
    asking = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _trains_five_steps()
    _announce()
    select.select([asking], [], [])
    Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(_rank())).write_text(f"collectives of rank {_rank()}")
    _wait_for("never")
    return 0


def its_checkpoint_is_committed_while_it_hangs() -> int:
    """As by the writer's process: told once the agent asks for the collectives, which it never gets."""
    pipe = Path(os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + f"{_rank()}.pipe")
    os.mkfifo(pipe)
    asking = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _trains_five_steps()
    _announce()
    select.select([asking], [], [])
    channel.send(Event.STEP, step=6, total=100)
    channel.send(Event.CHECKPOINT, step=5, path="/output/checkpoints/step-5-a1", savedAt="2026-01-01T00:00:00Z")
    _wait_for("never")
    return 0


def prints_and_saves() -> int:
    channel.send(Event.PHASE, name="Training")
    print("step 5: the key is fake-secret", flush=True)  # noqa: T201
    print("a warning", file=sys.stderr, flush=True)  # noqa: T201
    channel.send(Event.CHECKPOINT, step=5, path="/output/flux/5", savedAt="2026-01-01T00:00:00Z", stallSeconds=0.5)
    return 0


def prints_and_waits() -> int:
    sys.stdout.write(f"rank {_rank()} waits\n")  # at once: print writes the end of a line by itself
    _announce()
    _wait_for("never")
    return 0


def prints_for_ever() -> int:
    _announce()
    while True:
        print("x" * 1000, flush=True)  # noqa: T201
