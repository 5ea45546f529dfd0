"""The table of a step's figures in docs/numbers.md, made from contract.figures; the rest of the page is written by hand.

`python -m oarlock_api.numbers` writes the table; with --check it only compares.
"""

from __future__ import annotations

import sys

from oarlock_api.contract.figures import FIGURES
from oarlock_api.generated import REPOSITORY, write_or_check

PATH = REPOSITORY / "docs" / "numbers.md"
_BEGIN = "<!-- Made from api/src/oarlock_api/contract/figures.py by `make generate`. -->\n"
_END = "<!-- The end of what is made. -->\n"


def render(page: str) -> str:
    """`page` with the table as the figures are now. Raises ValueError where the marks around it are missing."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PATH} lacks the lines around its table of figures: {_BEGIN!r} and {_END!r}")
    rows = [f"| `{row.line}` | `{row.gauge}` | {row.unit} | {row.meaning} |" for row in FIGURES.values()]
    table = ["| `metrics.jsonl`, trackers | `/metrics` | unit | what it is |", "| --- | --- | --- | --- |", *rows]
    return f"{before}{_BEGIN}\n" + "\n".join(table) + f"\n\n{_END}{after}"


if __name__ == "__main__":
    sys.exit(write_or_check(module="oarlock_api.numbers", path=PATH, content=render(PATH.read_text())))
