"""Where the pages of these tests stand, and the situations that they share with those of `explain`."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "explain")]
