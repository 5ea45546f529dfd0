"""mosaicml-streaming: MDS shards, shuffled over the whole set."""

import sys
import time
from pathlib import Path

import samples
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader


def write(folder: Path, count: int) -> None:
    """Shards of 64 MB."""
    with MDSWriter(out=str(folder), columns={"latents": "bytes", "text": "bytes"}, size_limit=64 << 20) as sink:
        for latents, text in samples.make(count):
            sink.write({"latents": latents.tobytes(), "text": text.tobytes()})


def _collate(some: list[dict[str, bytes]]) -> object:
    return samples.collate([(one["latents"], one["text"]) for one in some])


def read(folder: Path) -> None:
    """One epoch in shuffled order."""
    clean_stale_shared_memory()
    began = time.monotonic()
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=samples.BATCH, num_canonical_nodes=1)
    loader = DataLoader(dataset, batch_size=samples.BATCH, num_workers=samples.WORKERS, collate_fn=_collate)
    samples.measure(loader, began)


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == "write" else read(Path(sys.argv[2]))
