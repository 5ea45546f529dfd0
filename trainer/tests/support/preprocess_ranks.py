"""Ranks for tests of preprocessing: a fork of the suite's host (fork_host.py), which forks every rank from itself.

Reads one order a line, {"training": ..., "output": "/o", "ranks": 2, "attempt": 1, "environment": {}}, answers with the pids
of the ranks, and when all have ended with a line that has for each rank, in order: its code (minus the signal that killed
it), what it said, what it told its agent, and the facts of what was prepared.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch.distributed as dist

from oarlock_api.contract.job_file import JobFile
from oarlock_trainer.data.entries import picture_at
from oarlock_trainer.data.prepared import Prepared
from oarlock_trainer.engine import process_group
from oarlock_trainer.preprocess.live import LiveEncoding
from oarlock_trainer.preprocess.pipeline import prepare
from oarlock_trainer.runtime.errors import LeftOnRequest, TrainingEnd
from oarlock_trainer.runtime.job import Job, RankInfo, parse_training
from oarlock_trainer.storage.locations import locations_of


def facts_of(prepared: Prepared) -> dict[str, Any]:
    """What a test asks of prepared data, by row and caption."""
    table, latents, texts = prepared.table, prepared.latents, prepared.texts
    return {
        "names": [table.picture(row).name for row in range(len(table))],
        "leftOut": list(table.manifest.left_out),
        "latents": [latents.read(row)[1] if latents.has(row) else None for row in range(len(latents))],
        "texts": [texts.read(caption)[1] for caption in range(len(texts)) if texts.has(caption)],
        "empty": texts.has(prepared.empty_text),
    }


def encode_live(job: Job, ranks: process_group.RankGroup, prepared: Prepared, rows: list[int]) -> list[Any]:
    """Shapes and sums of the latents of some rows, or entries as in data.entries, of one size, made twice."""
    live = LiveEncoding(job, locations_of(job, os.environ), ranks)
    pictures = [picture_at(prepared.table, row) for row in rows]
    made = [[one and (one[1], int(one[0].sum())) for one in live.encode(pictures)] for _ in range(2)]
    live.close()
    return made


def run_rank(job: Job, order: dict[str, Any], meeting: Path) -> dict[str, Any]:
    """One rank's life. `leaveAfter`: leave when `go_on` was called so often; `leaver`: that rank alone."""
    leaves = order.get("leaver", job.rank_info.rank) == job.rank_info.rank
    calls = iter(range(order.get("leaveAfter", 10**9) if leaves else 10**9))

    def go_on() -> None:
        if next(calls, None) is None:
            raise LeftOnRequest("left")

    try:
        ranks = process_group.join(job, store=dist.FileStore(str(meeting), job.rank_info.world_size))
        prepared = prepare(job, locations_of(job, os.environ), ranks, cut=lambda _: [], go_on=go_on)
        facts = facts_of(prepared)
        if entries := order.get("sums"):
            read = [prepared.latents.read(entry) for entry in entries]
            facts["sums"] = [[shape, int(values.sum())] for values, shape in read]
        if rows := order.get("live"):
            facts["live"] = encode_live(job, ranks, prepared, rows)
        process_group.leave()
    except TrainingEnd as end:
        return {"code": int(end.code), "said": str(end)}
    except Exception as error:  # noqa: BLE001 - a rank that lost its peers, or a fault to be shown
        return {"code": 1, "said": "".join(traceback.format_exception(error))}
    return {"code": 0, "said": "", "facts": facts}


def run(order: dict[str, Any], scratch: Path) -> None:
    """All ranks of one order, and both answers."""
    ranks = order["ranks"]
    file = JobFile(
        job="flux", namespace="default", job_uid=order.get("uid", "uid"), attempt=order.get("attempt", 1), nodes=1,
        gpus_per_node=0, output_directory=order["output"], training=order["training"],
    )  # fmt: skip
    pids = {}
    for rank in range(ranks):
        if (pid := os.fork()) == 0:
            told = os.open(scratch / f"told-{rank}", os.O_WRONLY | os.O_CREAT)
            os.environ |= {"OARLOCK_AGENT_FD": str(told), "RANK": str(rank)} | order.get("environment", {})
            rank_info = RankInfo(rank=rank, local_rank=rank, world_size=ranks, local_world_size=ranks)
            job = Job(file=file, training=parse_training(file), rank_info=rank_info, simulate_gpus=False)
            result = run_rank(job, order, scratch / "meeting")
            (scratch / f"result-{rank}").write_text(json.dumps(result))
            os._exit(0)
        pids[rank] = pid
    say(list(pids.values()))
    answer = []
    for rank, pid in pids.items():
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        told = [json.loads(line) for line in (scratch / f"told-{rank}").read_text().splitlines() if line]
        result = {"code": ended, "said": ""} if ended else json.loads((scratch / f"result-{rank}").read_text())
        answer.append({**result, "told": told})
    say(answer)


def say(answer: Any) -> None:
    """One line."""
    os.write(_ANSWERS, json.dumps(answer).encode() + b"\n")


_ANSWERS = os.dup(1)
os.dup2(2, 1)  # what ranks print is none of the answers
for line in sys.stdin:
    with tempfile.TemporaryDirectory() as folder:
        run(json.loads(line), Path(folder))
