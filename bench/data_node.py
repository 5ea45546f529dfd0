"""A node of this machine: one process imports everything and forks real ranks, which meet over gloo and do some work.

Memory is Pss_Anon of /proc, summed over the node's processes and looked at every 20 ms: anonymous memory, in
which a page that several share after the fork counts once. Mapped files are not in it: the kernel takes their pages back
when it needs them.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

RANKS = 2
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """What a node did. `marks`: seconds from just before the fork until the last rank had got there."""

    import_seconds: float
    imported_mib: float
    peak_mib: float
    marks: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What every rank is told: the work, its job, where the ranks meet, when the node began to fork them."""

    work: Any
    training: dict[str, Any]
    output: Path
    meeting: Path
    began: float


def run(work: str, training: dict[str, Any], output: Path) -> NodeRun:
    """Let every rank do `work`, "module:function", which takes (job, ranks, mark); it is only imported in the node."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_node, work, training, output).result()


def _node(work: str, training: dict[str, Any], output: Path) -> NodeRun:
    began = time.monotonic()
    from oarlock_trainer.ranks import preload  # noqa: PLC0415 - what importing takes is measured here

    preload.import_everything(encoders=False)
    module, function = work.split(":")
    called = getattr(importlib.import_module(module), function)
    import_seconds, imported = time.monotonic() - began, _anonymous_mib([os.getpid()])
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        order = _Order(
            work=called, training=training, output=output, meeting=Path(folder) / "meeting", began=time.monotonic()
        )
        ranks = [fork.Process(target=_rank, args=(rank, order, answers)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        peak = imported
        while len(wait([rank.sentinel for rank in ranks], timeout=0)) < len(ranks):
            peak = max(peak, _anonymous_mib([os.getpid(), *(rank.pid for rank in ranks if rank.pid)]))
            time.sleep(_LOOK_SECONDS)
        for rank in ranks:
            rank.join()
    each = [answers.get() for _ in ranks]
    if failed := [answer for answer in each if isinstance(answer, str)]:
        raise RuntimeError(failed[0])
    marks = {name: max(one[name] for one in each) for name in each[0]}
    return NodeRun(import_seconds=import_seconds, imported_mib=imported, peak_mib=peak, marks=marks)


def _rank(rank: int, order: _Order, answers: Any) -> None:
    from torch import distributed  # noqa: PLC0415 - imported before the fork, by the node

    from oarlock_api.contract.job_file import JobFile  # noqa: PLC0415
    from oarlock_trainer.engine import process_group  # noqa: PLC0415
    from oarlock_trainer.runtime.job import Job, RankInfo, parse_training  # noqa: PLC0415

    os.environ |= {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
    marks: dict[str, float] = {}

    def mark(name: str) -> None:
        marks[name] = time.monotonic() - order.began

    file = JobFile(
        job="bench", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(order.output), training=order.training,
    )  # fmt: skip
    rank_info = RankInfo(rank=rank, local_rank=rank, world_size=RANKS, local_world_size=RANKS)
    job = Job(file=file, training=parse_training(file), rank_info=rank_info, simulate_gpus=False)
    try:
        ranks = process_group.join(job, store=distributed.FileStore(str(order.meeting), RANKS))
        mark("joined")
        order.work(job, ranks, mark)
        process_group.leave()
    except Exception:  # noqa: BLE001 - the node raises it
        answers.put(traceback.format_exc())
        os._exit(1)  # the others then end too, as their peer is gone
    answers.put(marks)


def _anonymous_mib(pids: Iterable[int]) -> float:
    kib = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found = re.search(r"^Pss_Anon: +(\d+) kB", text, re.MULTILINE)
        kib += int(found[1]) if found else 0
    return kib / 1024
