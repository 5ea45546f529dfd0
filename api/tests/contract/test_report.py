"""The report: always small enough for the kubelet, and read from whatever a container left behind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.report import MAX_BYTES, MAX_EVIDENCE, Evidence, Gpu, Report, parse_report
from oarlock_api.contract.wire import WireError

# Multi-byte, escaped (six bytes each in JSON), and lone surrogates as in names of undecodable files.
NASTY = st.text(st.characters(), max_size=100) | st.sampled_from(
    ["\x00" * 3000, "🚣" * 3000, "ß" * 3000, '"' * 3000, "\ud800" * 3000]
)
NUMBERS = st.floats() | NASTY
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)

REPORTS = st.builds(
    Report,
    attempt=INTEGERS,
    rank=INTEGERS,
    pod_uid=NASTY,
    failure_class=NASTY,
    code=INTEGERS,
    detected_at=NASTY,
    summary=NASTY,
    step=st.none() | INTEGERS,
    checkpoint_step=st.none() | INTEGERS,
    gpu=st.none() | st.builds(Gpu, index=INTEGERS, uuid=NASTY, serial=NASTY, pci_bus_id=NASTY, name=NASTY),
    xid=st.none() | INTEGERS,
    evidence=st.lists(st.builds(Evidence, probe=NASTY, value=NUMBERS, at=NASTY), max_size=12).map(tuple),
    first_error_rank=st.none() | INTEGERS,
)


@given(REPORTS)
def test_a_report_is_at_most_4096_bytes_of_utf_8_and_readable_whatever_is_in_it(report: Report) -> None:
    written = report.to_json()
    assert len(written.encode("utf-8")) <= MAX_BYTES
    read = parse_report(written)
    assert (read.attempt, read.rank, read.code) == (report.attempt, report.rank, report.code)
    assert len(read.evidence) <= MAX_EVIDENCE


def test_a_full_report_gives_up_evidence_before_its_summary() -> None:
    evidence = tuple(Evidence(probe=f"probe-{i}", value="x" * 256, at="2026-01-01T00:00:00Z") for i in range(8))
    summary = "ß" * 1400
    report = Report(1, 0, "uid", "GPU", 80, "2026-01-01T00:00:00Z", summary, evidence=evidence)
    read = parse_report(report.to_json())
    assert read.summary == summary
    assert 0 < len(read.evidence) < 8
    assert read.evidence == evidence[: len(read.evidence)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_written_as_null_and_its_evidence_not_read(value: float) -> None:
    written = Report(1, 0, "u", "GPU", 80, "t", "s", evidence=(Evidence("probe", value, "t"),)).to_json()
    assert json.loads(written)["evidence"][0]["value"] is None
    assert parse_report(written).evidence == ()


@pytest.mark.parametrize(
    ("value", "told"), [(79.0, "79"), (79, "79"), (0.5, "0.5"), ("reset", "reset"), (1e6, "1000000")]
)
def test_a_whole_number_is_told_without_a_point(value: float | str, told: str) -> None:
    (read,) = parse_report(
        Report(1, 0, "u", "GPU", 80, "t", "s", evidence=(Evidence("probe", value, "t"),)).to_json()
    ).evidence
    assert read.reading == told


LEAST = {"attempt": 1, "rank": 0, "code": 1}


def read(**fields: object) -> Report:
    return parse_report(json.dumps({**LEAST, **fields}))


def test_a_newer_version_with_unknown_fields_is_read_as_far_as_it_is_known() -> None:
    report = read(version=99, summary="broken", weather="rain", gpu={"index": 1, "temperature": 90})
    assert report.summary == "broken"
    assert report.gpu == Gpu(index=1)


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"podUid": 5}, "pod_uid", ""),
        ({"summary": ["x"]}, "summary", ""),
        ({"summary": "x" * 3000}, "summary", "x" * 1500),
        ({"summary": "a\ud800b"}, "summary", "a?b"),
        ({"detectedAt": "9" * 100}, "detected_at", "9" * 40),
        ({"class": "c" * 100}, "failure_class", "c" * 32),
        ({"step": "7"}, "step", None),
        ({"step": 7.5}, "step", None),
        ({"step": True}, "step", None),
        ({"step": 2**63}, "step", None),
        ({"xid": None}, "xid", None),
        ({"gpu": {"uuid": "no index"}}, "gpu", None),
        ({"gpu": "GPU-1"}, "gpu", None),
        ({"gpu": {"index": 0, "uuid": "u" * 100, "serial": 7}}, "gpu", Gpu(index=0, uuid="u" * 64)),
        ({"evidence": {"probe": "p"}}, "evidence", ()),
        ({"evidence": ["p", 5, None, {}, {"probe": "p", "value": {}}]}, "evidence", ()),
        ({"evidence": [{"probe": "p", "value": 10**400}]}, "evidence", ()),
        ({"evidence": [{"probe": "p", "value": 1, "at": 2}]}, "evidence", (Evidence("p", 1.0, ""),)),
        ({"evidence": [{"probe": "p", "value": 1}] * 20}, "evidence", (Evidence("p", 1.0, ""),) * MAX_EVIDENCE),
    ],
)
def test_a_strange_value_is_bounded_or_absent_and_never_an_error(
    fields: dict[str, object], name: str, expected: object
) -> None:
    assert getattr(read(**fields), name) == expected


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Traceback (most recent call last):",
        "[1, 2]",
        "null",
        "{",
        '{"attempt": 1, "rank": 0}',
        '{"attempt": "1", "rank": 0, "code": 1}',
        '{"attempt": NaN, "rank": 0, "code": 1}',
        '{"attempt": ' + "1" * 4050 + "}",
        "[" * 4000,
        json.dumps({**LEAST, "summary": "x" * 4096}),
    ],
    ids=["empty", "log", "list", "null", "cut", "no code", "text", "NaN", "endless", "deep", "too long"],
)
def test_what_is_no_report_is_refused_as_one(message: str) -> None:
    with pytest.raises(WireError):
        parse_report(message)


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(
        lambda value: json.dumps(
            {**LEAST, **(value if isinstance(value, dict) else {"gpu": value, "evidence": [value], "summary": value})}
        )
    )
)
def test_no_text_makes_the_reader_raise_anything_but_a_wire_error(message: str) -> None:
    try:
        report = parse_report(message)
    except WireError:
        return
    report.to_json().encode()
