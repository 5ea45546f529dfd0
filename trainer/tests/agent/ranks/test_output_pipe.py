"""The end of what ranks write to their standard error, in whole lines."""

from __future__ import annotations

import os

from oarlock_trainer.agent.ranks.output_pipe import KEPT, OutputPipe


def remembered(written: bytes) -> str:
    tail = OutputPipe(2)
    while written:
        written = written[os.write(tail.descriptor, written[:4096]) :]
        _ = tail.text
    tail.finish()
    return tail.text


def test_what_is_short_is_remembered_whole() -> None:
    assert remembered(b"one\ntwo") == "one\ntwo"


def test_a_line_that_would_be_cut_is_not_remembered_at_all() -> None:
    # Half a secret could not be told for one any more.
    rest = b"x" * (KEPT - 100)
    assert remembered(b"the token is SECRET0123456789 " * 8 + b"\n" + rest) == rest.decode()
    assert remembered(b"SECRET" + b"y" * KEPT) == ""
