"""webdataset: tar files, read in sequence, shuffled in a buffer."""

import sys
import time
from pathlib import Path

import samples
import webdataset


def write(folder: Path, count: int) -> None:
    """Shards of 256 MB."""
    with webdataset.ShardWriter(str(folder / "shard-%05d.tar"), maxsize=256 << 20, verbose=0) as sink:
        for number, (latents, text) in enumerate(samples.make(count)):
            sink.write({"__key__": f"{number:08d}", "latents": latents.tobytes(), "text": text.tobytes()})


def read(folder: Path) -> None:
    """One epoch, shuffled in a buffer."""
    began = time.monotonic()
    urls = sorted(str(path) for path in folder.glob("*.tar"))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls), seed=1, workersplitter=webdataset.split_by_worker)
        .shuffle(256)
        .to_tuple("latents", "text")
        .batched(samples.BATCH, collation_fn=samples.collate, partial=True)
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=samples.WORKERS)
    samples.measure(loader, began)


if __name__ == "__main__":
    write(Path(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == "write" else read(Path(sys.argv[2]))
