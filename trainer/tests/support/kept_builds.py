"""What torch's compiler hands to g++ is built once and kept between runs of the tests (compiler/g++).

torch itself compiles anew, each time: what is tested is its graphs and its code, and not g++.
"""

from __future__ import annotations

import os
from pathlib import Path

from oarlock_local.folders import cache_folder

ENVIRONMENT = {
    "CXX": str(Path(__file__).parent / "compiler/g++"),
    "OARLOCK_TESTS_COMPILED": str(cache_folder(os.environ) / "compiled"),
    "TORCHINDUCTOR_VEC_ISA_OK": "0",
}
"""For a process that has not imported torch's compiler yet. The last: ten programs less that it builds to see what the
processor can."""
