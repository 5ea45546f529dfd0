"""What it takes a node's ranks to read weights over a file system that answers late, whether one of them reads ahead or none.

    sudo .venv/bin/python bench/weights.py [--ranks 4] [--gigabytes 1] [--milliseconds 1] [--rounds 5]

The file system is FUSE by hand: one file of zeros behind a header of safetensors, each read answered a fixed time after it
was asked for, up to 64 at a time, as a server far away answers. The kernel reads ahead on it as it does on NFS (128 KiB where
files are mapped). Each round mounts it anew, so that no page is in memory, and takes both ways in turn. A rank copies each
tensor out of the mapped file, as a copy to a GPU does. See decision 0029.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import multiprocessing
import os
import resource
import statistics
import struct
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from safetensors import safe_open

from oarlock_trainer.models.read_ahead import read_ahead, room

TENSOR = 4 << 20
NAME = "weights.safetensors"
INIT, LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, INTERRUPT, BATCH_FORGET = 26, 1, 2, 3, 14, 15, 18, 36, 42
ASYNCHRONOUS, PAGES = 1, 1 << 22
"""Flags of INIT: several reads of a file at a time, and reads of more than 32 pages."""
LONGEST = 1 << 20
ROOT, FILE = 1, 2
FOREVER = 3600


class Server:
    """The far side. `content` is the file's beginning; the rest of its `size` bytes are zeros."""

    def __init__(self, device: int, content: bytes, size: int, seconds: float) -> None:
        self._device, self._content, self._size, self._seconds = device, content, size, seconds
        self._zeros = bytes(LONGEST)
        self._pool = ThreadPoolExecutor(64)
        self.read: list[int] = []

    def serve(self) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(self._device, LONGEST + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            _, kind, unique, node = struct.unpack_from("=IIQQ", request)
            body = request[40:]
            if kind == READ:
                self._pool.submit(self._read, unique, body)
            elif kind not in {FORGET, BATCH_FORGET, INTERRUPT}:
                self._answer(unique, self._small(kind, node, body))

    def _read(self, unique: int, body: bytes) -> None:
        _, start, size = struct.unpack_from("=QQI", body)
        self.read.append(size)
        time.sleep(self._seconds)
        size = max(min(size, self._size - start), 0)
        data = (self._content[start : start + size] + self._zeros[:size])[:size]
        self._answer(unique, data)

    def _small(self, kind: int, node: int, body: bytes) -> bytes | int:
        """The answer to what is no read; a number is an error."""
        if kind == INIT:
            major, _, ahead, offered = struct.unpack_from("=IIII", body)
            flags = offered & (ASYNCHRONOUS | PAGES)
            return struct.pack(
                "=IIIIHHIIHHIIH22x", major, 31, ahead, flags, 64, 48, LONGEST, 1, LONGEST >> 12, 0, 0, 0, 0
            )
        if kind == LOOKUP:
            if body.rstrip(b"\0") != NAME.encode():
                return errno.ENOENT
            return struct.pack("=QQQQII", FILE, 0, FOREVER, FOREVER, 0, 0) + self._facts(FILE)
        if kind == GETATTR:
            return struct.pack("=QII", FOREVER, 0, 0) + self._facts(node)
        if kind == OPEN:
            return struct.pack("=QIi", 0, 2, 0)  # 2: what is in the page cache stays there
        return b"" if kind == RELEASE else errno.ENOSYS

    def _facts(self, node: int) -> bytes:
        size, mode = (self._size, 0o100444) if node == FILE else (0, 0o40555)
        return struct.pack("=6Q10I", node, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, unique: int, answer: bytes | int) -> None:
        data, code = (b"", -answer) if isinstance(answer, int) else (answer, 0)
        try:
            os.writev(self._device, [struct.pack("=IiQ", 16 + len(data), code, unique), data])
        except OSError as error:
            if error.errno != errno.ENOENT:  # who asked waits no longer
                raise


def main() -> None:
    """Measure both ways, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--milliseconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(options.rounds):
        for ahead, rounds in found.items():
            rounds.append(measured(options, ahead=ahead))
    for ahead, rounds in found.items():
        print("read ahead" if ahead else "mapped alone")
        for name in rounds[0]:
            values = sorted(one[name] for one in rounds)
            print(f"  {name:<24}{statistics.median(values):>10.2f}   ({values[0]:.2f}-{values[-1]:.2f})")


def measured(options: argparse.Namespace, *, ahead: bool) -> dict[str, float]:
    """One node's start: seconds until all ranks have all, seconds of processor time, and what reached the file system."""
    header, size = safetensors_header(int(options.gigabytes * 1e9) // TENSOR)
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as place:
        given = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={LONGEST}"
        if libc.mount(b"late", place.encode(), b"fuse", 0, given.encode()):
            raise OSError(ctypes.get_errno(), "mounting FUSE takes root")
        told, tell = os.pipe()
        if (server := os.fork()) == 0:
            serving = Server(device, header, size, options.milliseconds / 1000)
            serving.serve()
            os.write(tell, json.dumps([len(serving.read), sum(serving.read)]).encode())
            os._exit(0)
        os.close(device)
        try:
            path = Path(place, NAME)
            path.stat()
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            started = [
                multiprocessing.get_context("fork").Process(target=rank, args=(path, ahead and not number))
                for number in range(options.ranks)
            ]
            for process in started:
                process.start()
            for process in started:
                process.join()
            seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        finally:
            libc.umount2(place.encode(), 0)
        reads, size_read = json.loads(os.read(told, 4096))
        os.waitpid(server, 0)
        os.close(told)
        os.close(tell)
    return {
        "seconds": seconds,
        "processor seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "reads": reads,
        "KiB a read": size_read / reads / 1024,
        "bytes read of the file's": size_read / size,
    }


def safetensors_header(tensors: int) -> tuple[bytes, int]:
    """The beginning of a file with so many tensors of float32, and the size of all of it."""
    entries = {
        f"{number:06}": {
            "dtype": "F32",
            "shape": [TENSOR // 4],
            "data_offsets": [number * TENSOR, (number + 1) * TENSOR],
        }
        for number in range(tensors)
    }
    body = json.dumps(entries).encode()
    return struct.pack("<Q", len(body)) + body, 8 + len(body) + tensors * TENSOR


def rank(path: Path, ahead: bool) -> None:  # noqa: FBT001 - an argument of a process
    """Copy every tensor out of the mapped file."""
    with read_ahead([path], room=room()) if ahead else nullcontext(), safe_open(path, framework="np") as file:
        for name in file.keys():  # noqa: SIM118 - no mapping
            file.get_tensor(name)


if __name__ == "__main__":
    main()
