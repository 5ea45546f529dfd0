"""litdata: chunks of 64 MB, shuffled by chunk and within.

It empties folders with common names (data, chunks) in the machine's temporary folder: it is given one of its own.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="litdata-")

import litdata
import samples

_source = samples.make(1 << 30)


def write(folder: Path, count: int) -> None:
    """Chunks of 64 MB."""
    litdata.optimize(fn=_made, inputs=list(range(count)), output_dir=str(folder), chunk_bytes="64MB", num_workers=1)


def _made(_number: int) -> dict[str, bytes]:
    latents, text = next(_source)
    return {"latents": latents.tobytes(), "text": text.tobytes()}


def _collate(some: list[dict[str, bytes]]) -> object:
    return samples.collate([(one["latents"], one["text"]) for one in some])


def read(folder: Path) -> None:
    """One epoch in shuffled order."""
    began = time.monotonic()
    dataset = litdata.StreamingDataset(str(folder), shuffle=True)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=samples.BATCH, num_workers=samples.WORKERS, collate_fn=_collate
    )
    samples.measure(loader, began)


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == "write" else read(Path(sys.argv[2]))
