"""The glossary of docs/concepts.md, made from `oarlock.glossary`.

`python -m oarlock.glossary_page` writes it; with --check it only compares.
"""

from __future__ import annotations

import sys

from oarlock.glossary import WORDS
from oarlock_api.generated import REPOSITORY, write_or_check

PATH = REPOSITORY / "docs" / "concepts.md"
_BEGIN = "<!-- Made from client/src/oarlock/glossary.py by `make generate`. -->\n"
_END = "<!-- The end of what is made. -->\n"


def render(page: str) -> str:
    """`page` with the table as the words are now. Raises ValueError where the marks around it are missing."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PATH} lacks the lines around its table: {_BEGIN!r} and {_END!r}")
    rows = "".join(f"| {word} | {meaning} |\n" for word, meaning in WORDS.items())
    return f"{before}{_BEGIN}\n| word | meaning |\n| --- | --- |\n{rows}\n{_END}{after}"


if __name__ == "__main__":
    sys.exit(write_or_check(module="oarlock.glossary_page", path=PATH, content=render(PATH.read_text())))
