"""What members report of rounds, as frames of the link."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_trainer.agent.link.protocol import MAX_LINE, decode, encode
from oarlock_trainer.agent.rounds.model import FIRST, Fault, Report
from oarlock_trainer.checkpoint.memory.held import Held

STRUCK = StruckGpu(index=7, uuid="GPU-5c1f", serial="1652", xid=94)
REPORT = Report(
    -1, "", 1, 5, round=FIRST, fault=Fault(81, "GPU 7 XID 94", gpu=STRUCK), step=9, held=(Held(8, 4, (0, 3)),)
)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        replace(REPORT, fault=Fault(83, "hangs", sure=False)),
        replace(REPORT, fault=None),
        replace(REPORT, saved=7),
    ],
)
def test_a_report_is_read_as_it_was(report: Report) -> None:
    assert decode(encode(report).rstrip(b"\n")) == report


def test_a_report_fits_into_a_line_however_long_its_names_and_its_reason_are() -> None:
    named = StruckGpu(index=1023, uuid="G" * 48, serial="S" * 48, xid=9999, probe="p" * 48)
    held = tuple(Held(2**40 + step, 1000, tuple(range(900, 916, 2))) for step in range(4))
    for why in ("w" * 999, "\U0001f6a8" * 999):
        line = encode(replace(REPORT, fault=Fault(81, why, gpu=named), sequence=2**40, held=held))
        assert len(line) <= MAX_LINE
        read = decode(line.rstrip(b"\n"))
        assert isinstance(read, Report)
        assert read.fault is not None
        assert (read.fault.gpu, read.held) == (named, held)


def test_all_parts_of_a_large_gang_are_told_in_a_few_bytes() -> None:
    report = replace(REPORT, held=(Held(8, 1000, tuple(range(1000))),))
    line = encode(report).rstrip(b"\n")
    assert len(line) < 512
    assert decode(line) == report


@pytest.mark.parametrize(
    "held",
    [
        [[8, [0, 1]]],
        [[8, 0, [[0, 1]]]],
        [[8, 2, [[0, 2**40]]]],
        [[8, 2, [[0, 2], [1, 1]]]],
        [["8", 2, []]],
        [8],
        {},
        None,
    ],
)
def test_parts_that_make_no_sense_are_none(held: object) -> None:
    raw = json.loads(encode(REPORT))
    read = decode(json.dumps(raw | {"held": held}).encode())
    assert isinstance(read, Report)
    assert read.held == ()


@pytest.mark.parametrize("gpu", ["GPU-5", {"index": 1}, {**STRUCK.to_fields(), "uuid": "\0"}])
def test_a_gpu_that_makes_no_sense_is_none(gpu: object) -> None:
    raw = json.loads(encode(REPORT))
    read = decode(json.dumps(raw | {"gpu": gpu}).encode())
    assert isinstance(read, Report)
    assert read.fault == replace(REPORT.fault or Fault(1, ""), gpu=None)
