"""How much of boto3's own speed is left: ranged reads of S3Files beside a bare loop of ranged GETs, on the loopback.

    python bench/s3.py [ROUNDS]

All read the same ranges of a 256 MiB object, sixteen in flight, in turns. The ratios within each round are what counts:
what else the machine does changes from round to round. Client and server share the machine's cores, so that every
microsecond of CPU shows; over a real network the line is the limit. Ranges of 1 MiB are hedged, those of 4 MiB are not.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config

from oarlock_local.s3 import S3Server, serving
from oarlock_trainer.storage.credentials import Keys
from oarlock_trainer.storage.s3 import S3Files
from oarlock_trainer.storage.service import Service

MIB = 1 << 20
SIZE, IN_FLIGHT = 256 * MIB, 16
READS = {4 * MIB: 192, MIB: 480}
"""How many reads of which length make a round."""

Read = Callable[[int, int], bytes]


def bare(server: S3Server) -> Read:
    """One GET without anything around it."""
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        config=Config(max_pool_connections=64, response_checksum_validation="when_required"),
    )

    def read(start: int, length: int) -> bytes:
        asked = f"bytes={start}-{start + length - 1}"
        content: bytes = client.get_object(Bucket="bench", Key="large", Range=asked)["Body"].read()
        return content

    return read


def rate(read: Read, length: int) -> float:
    """MB/s over one round."""
    starts = [random.Random(number).randrange(SIZE - length) for number in range(READS[length])]  # noqa: S311
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        began = time.perf_counter()
        total = sum(len(content) for content in pool.map(lambda start: read(start, length), starts))
        return total / (time.perf_counter() - began) / 1e6


def compare(contenders: dict[str, Read], length: int, rounds: int) -> None:
    """Print each contender's rate, and its ratio to the bare loop."""
    for read in contenders.values():
        rate(read, length)  # connections, and what is usual
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, read in contenders.items():
            rates[name].append(rate(read, length))
    for name, measured in rates.items():
        ratios = [one / base for one, base in zip(measured, rates["bare boto3"], strict=True)]
        print(
            f"{length // MIB} MiB  {name:24} median {statistics.median(measured):6.0f} MB/s, "
            f"of the bare loop {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})"
        )


def main(rounds: int) -> None:
    """Measure both lengths."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "s3", buckets=["bench"]) as server:
        service = Service(
            endpoint=server.endpoint,
            region=server.region,
            keys=Keys(server.access_key_id, server.secret_access_key),
        )
        files = S3Files(service, "bench", field="bench")
        files.write("large", os.urandom(SIZE))
        contenders: dict[str, Read] = {
            "bare boto3": bare(server),
            "bare boto3 again": bare(server),
            "S3Files": lambda start, length: files.read("large", start, length),
        }
        for length in READS:
            compare(contenders, length, rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
