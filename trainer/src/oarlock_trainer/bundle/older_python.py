"""What our code takes from the standard library of Python 3.11, put into that of 3.10, which many images still have.

Only the bundle does so, and before it imports anything else of ours: in its processes nobody else's code runs, so all our
modules may be written for 3.11. To be dropped as a whole once no image worth starting in has a 3.10.
"""

from __future__ import annotations

import datetime as dt
import enum
import sys

OLDEST = (3, 10)


def complete() -> None:
    """Add what is missing; nothing on any newer Python. An older one ends here, in words."""
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:2]))
        sys.exit(f"Oarlock's agent needs Python 3.10 or newer, and this image's python3 is {found}")
    if sys.version_info < (3, 11):  # noqa: UP036 - the bundle runs there as well
        dt.UTC = dt.timezone.utc  # noqa: UP017 - the newer name is what is missing
        enum.StrEnum = _str_enum()


def _str_enum() -> type[enum.Enum]:
    class StrEnum(str, enum.Enum):  # noqa: UP042 - the newer base is what is missing
        """A text that is one of an enumeration's, and is written as the text."""

        __str__ = str.__str__

        def __format__(self, form: str) -> str:
            return str.__format__(self, form)

    return StrEnum
