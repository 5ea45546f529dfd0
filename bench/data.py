"""How fast data become batches: metadata of ten million rows, discovery, preprocessing, and readers side by side.

    .venv/bin/python bench/data.py rows | discovery | preprocess [--folder FOLDER] [--rounds 3] [--count N]
    .venv/bin/python bench/data.py readers --peers PYTHON [--folder FOLDER]

What is read is written once below FOLDER, by default oarlock-bench in the temporary folder, and kept there: about 10 GB.
Each prints a table and writes bench/results/data-*.json. The peers' PYTHON is that of an environment of its own:

    uv venv peers && uv pip install --python peers webdataset==1.0.2 mosaicml-streaming==0.13.0 litdata==0.2.76 torch==2.13.0

Reading from S3 is measured by bench/s3.py.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path

COUNTS = {"rows": 10_000_000, "discovery": 100_000, "preprocess": 256, "readers": 1000}
"""What is measured, and over how many rows, pictures or samples."""


def main() -> None:
    """Measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COUNTS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "oarlock-bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int)
    parser.add_argument("--peers", type=Path, help="readers: Python of the peers' environment")
    options = parser.parse_args()
    what = importlib.import_module(f"data_{options.what}")  # what the others import would cost memory and time
    peers = {"peers": options.peers} if options.what == "readers" else {}
    count = options.count or COUNTS[options.what]
    what.measure(options.folder / options.what, count=count, rounds=options.rounds, **peers)


if __name__ == "__main__":
    main()
