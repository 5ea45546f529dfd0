"""The exchange between all GPUs of one or more machines, by the trainer's own collective check: bus bandwidth, and by what.

    .venv/bin/python bench/gpu_network.py                                                    this machine alone
    .venv/bin/python bench/gpu_network.py --nodes 4 --node 0 --master 10.0.0.1:29600         on each, with its own --node

An all-reduce and a ring of 256 MiB, the fastest of three each, counted as nccl-tests count it (busbw). To compare:
nccl-tests' `all_reduce_perf -b 256M -e 256M -g 8`. Node 0 prints a line and writes bench/results/gpu/gpu-network.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

import forked_ranks
import gpu_count
import gpu_results
from data_report import RESULTS

from oarlock_api.contract.job_file import JobFile
from oarlock_trainer.health.fabric import NcclLog
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.job import Job, RankInfo

PORT = 29600


def main() -> int:
    """Fork a rank for each GPU; rank 0 reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--node", type=int, default=0, help="this machine's number, from 0")
    parser.add_argument("--master", default=f"127.0.0.1:{PORT}", metavar="HOST:PORT", help="where node 0 listens")
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-network.json")
    parser.add_argument("--cpus", type=int, default=0, metavar="RANKS", help="ranks on the CPU, over gloo: a dry run")
    options = parser.parse_args()
    gpus = options.cpus or gpu_count.gpus()
    if not gpus:
        print("bench/gpu_network.py needs CUDA GPUs, and this machine has none: nothing was measured.")
        return 1
    if gpus * options.nodes == 1:
        told = "one GPU: there is nobody to exchange with"
        gpu_results.write(options.result, {"told": told})
        print(told)
        return 0
    return forked_ranks.run(gpus, lambda local: _rank(local, gpus, options))


def _rank(local: int, gpus: int, options: argparse.Namespace) -> None:
    os.environ["GPUS_PER_NODE"] = "0" if options.cpus else str(gpus)
    preload.settle_environment()
    host, _, port = options.master.rpartition(":")
    rank, world = options.node * gpus + local, options.nodes * gpus
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(world)}
    from oarlock_trainer.engine import process_group  # noqa: PLC0415 - torch, in each rank for itself
    from oarlock_trainer.preflight.collective import exercise  # noqa: PLC0415 - torch, in each rank for itself

    file = JobFile(
        job="bench", namespace="", job_uid="bench", attempt=1, nodes=options.nodes,
        gpus_per_node=0 if options.cpus else gpus, output_directory=".", training={},
    )  # fmt: skip
    rank_info = RankInfo(rank=rank, local_rank=local, world_size=world, local_world_size=gpus)
    log = NcclLog(os.environ)
    ranks = process_group.join(Job(file=file, training=None, rank_info=rank_info, simulate_gpus=False))
    times = exercise.run(ranks, log.network)
    process_group.leave()
    if rank == 0:
        found = asdict(times) | {"bus_bandwidth": times.bus_bandwidth, "nodes": options.nodes}
        print(
            f"{world} ranks of {options.nodes} nodes: {times.bus_bandwidth:.1f} GB/s of bus bandwidth, {times.networks}"
        )
        if not options.cpus:
            gpu_results.write(options.result, found)


if __name__ == "__main__":
    sys.exit(main())
