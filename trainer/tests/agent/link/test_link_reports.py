"""What members report of rounds, as frames of the link."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_trainer.agent.link.protocol import MAX_LINE, decode, encode
from oarlock_trainer.agent.rounds.model import FIRST, Fault, Report

STRUCK = StruckGpu(index=7, uuid="GPU-5c1f", serial="1652", xid=94)
REPORT = Report(-1, "", 1, 5, round=FIRST, fault=Fault(81, "GPU 7 XID 94", gpu=STRUCK), step=9, held=((8, (0, 1)),))


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
    parts = tuple(range(10**6, 10**6 + 16))
    held = tuple((2**40 + step, parts) for step in range(4))
    for why in ("w" * 999, "\U0001f6a8" * 999):
        line = encode(replace(REPORT, fault=Fault(81, why, gpu=named), sequence=2**40, held=held))
        assert len(line) <= MAX_LINE
        read = decode(line.rstrip(b"\n"))
        assert isinstance(read, Report)
        assert read.fault is not None
        assert read.fault.gpu == named


@pytest.mark.parametrize("gpu", ["GPU-5", {"index": 1}, {**STRUCK.to_fields(), "uuid": "\0"}])
def test_a_gpu_that_makes_no_sense_is_none(gpu: object) -> None:
    raw = json.loads(encode(REPORT))
    read = decode(json.dumps(raw | {"gpu": gpu}).encode())
    assert isinstance(read, Report)
    assert read.fault == replace(REPORT.fault or Fault(1, ""), gpu=None)
