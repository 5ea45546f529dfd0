"""A process that reads twenty files of 1 MiB at random through a cache that it shares with one more.

Arguments: the folder with the files, each of which holds its number over and over; the cache's; a seed; how many reads.
"""

import random
import sys
from pathlib import Path

from oarlock_trainer.storage.cache import CachedFiles
from oarlock_trainer.storage.local import LocalFiles

place, cache, seed, reads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)  # noqa: S311
files = CachedFiles(LocalFiles(place, field="f"), cache, capacity=12 << 20, processes=2)
for _ in range(reads):
    number, start = chance.randrange(20), chance.randrange(4) * 1000
    content = files.read(str(number), start, 500_000)
    assert content == bytes([number]) * 500_000, f"{number} at {start}: {content[:10]!r}"
