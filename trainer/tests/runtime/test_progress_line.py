"""A person who waits is told what for, and one who does not wait is told nothing."""

from __future__ import annotations

import io
import threading

import pytest

from oarlock_local import patience
from oarlock_trainer.runtime.progress_line import meanwhile

_NEVER = 3600.0


class _Heard(io.StringIO):
    """Says when a line has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def flush(self) -> None:
        self.came.set()


def test_what_goes_on_for_longer_than_a_moment_is_told_once() -> None:
    heard = _Heard()
    with meanwhile(after=0.0, stream=heard) as now:
        for what in ("loading", "reading"):
            now(what)
            assert heard.came.wait(patience.SECONDS)
            heard.came.clear()
        now("reading")
    assert heard.getvalue() == "loading ...\nreading ...\n"


def test_what_is_over_within_a_moment_is_not_told() -> None:
    heard = _Heard()
    with meanwhile(after=_NEVER, stream=heard) as now:
        now("loading")
        now("reading")
    assert heard.getvalue() == ""


def test_an_error_ends_the_telling_and_goes_on() -> None:
    with pytest.raises(KeyError), meanwhile(after=_NEVER, stream=_Heard()):
        raise KeyError
    assert "meanwhile" not in {thread.name for thread in threading.enumerate()}
