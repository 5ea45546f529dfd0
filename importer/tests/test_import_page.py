"""docs/simpletuner.md says what the tables say."""

from __future__ import annotations

import re

from oarlock_import import page
from oarlock_import.importing import OPTIONS


def test_the_page_is_made_from_the_tables() -> None:
    assert page.main(["--check"]) == 0, "run: python -m oarlock_import.page"


def test_the_page_names_every_option() -> None:
    named = set(re.findall(r"`([a-z0-9_.]+)`", page.page()))
    assert set(OPTIONS) - named == set()
