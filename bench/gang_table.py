"""The table of a run: medians of all contenders, and their ratios to the floor.

A run in which others used much of the machine is left out where there is a quiet one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from measuring import Record

REFERENCES = ("minimal", "floor")
"""What the others are measured by, the first that ran."""
Value = Callable[[Record], "float | None"]


def table(records: Sequence[Record]) -> str:
    """One paragraph per scenario and size, one line per measure, in the order in which they were measured.

    Behind each number how many times that of the reference it is.
    """
    names = list(dict.fromkeys(record.contender for record in records))
    reference = next((name for name in REFERENCES if name in names), "")
    lines = [f"{'scenario':<16}{'size':>9}  {'':<20}" + "".join(f"{name:>18}" for name in names)]
    for scenario, size in dict.fromkeys((record.scenario, record.size) for record in records):
        cell = [record for record in records if (record.scenario, record.size) == (scenario, size)]
        runs = "".join(f"{_runs(cell, name):>18}" for name in names)
        lines.append(f"{scenario:<16}{size:>9}  {'runs':<20}{runs}")
        for name, value, digits in _measures(cell):
            base = _median(cell, reference, value)
            numbers = "".join(_number(_median(cell, each, value), base, digits, each != reference) for each in names)
            lines.append(f"{'':<27}{name:<20}{numbers}")
        if verbs := _verbs(cell):
            lines.append(f"{'':<27}{'requests':<20}{verbs}")
    return "\n".join(lines)


def _number(number: float | None, base: float | None, digits: int, compared: bool) -> str:  # noqa: FBT001
    ratio = f"{number / base:.2f} x" if compared and number is not None and base else ""
    return f"{_shown(number, digits):>10}{ratio:>8}"


def one_line(record: Record) -> str:
    """A record while the run goes on."""
    times = "  ".join(f"{name} {seconds:.2f}" for name, seconds in record.times.items()) or "not decided in time"
    costs = f"cpu {record.cpu_seconds:.2f} s  peak {record.peak_mib:.0f} MiB"
    noise = f"  (others used {record.others_cores:.2f} cores)" if record.noisy else ""
    noise += f"  (watch resumed {record.resumed} times)" if record.resumed else ""
    return f"{record.scenario:<15}{record.size:>9} {record.contender:<9} {times}  {costs}{noise}"


def _measures(cell: Sequence[Record]) -> Iterator[tuple[str, Value, int]]:
    """Name, way to get it, and digits of each measure."""
    for name in dict.fromkeys(name for record in cell for name in record.times):
        yield f"{name}, s", lambda record, name=name: record.times.get(name), 2  # type: ignore[misc]
    if not any(record.times for record in cell):
        yield "not decided in time", lambda _: None, 0
    yield "cpu, s", lambda record: record.cpu_seconds, 2
    yield "peak, MiB", lambda record: record.peak_mib, 0
    yield "control plane cpu, s", lambda record: record.control_plane_cpu_seconds, 1
    yield "looks waited below, s", lambda record: record.waited_below, 2


def _verbs(cell: Sequence[Record]) -> str:
    """The operator's requests: median of their number, and by verb."""
    mine = [record.calls for record in cell if record.calls]
    verbs = sorted({verb for calls in mine for verb in calls})
    each = [f"{verb} {statistics.median(calls.get(verb, 0) for calls in mine):.0f}" for verb in verbs]
    total = statistics.median(sum(calls.values()) for calls in mine) if mine else 0
    return f"{total:>12.0f}  ({', '.join(each)})" if mine else ""


def _runs(cell: Sequence[Record], contender: str) -> str:
    runs = [record for record in cell if record.contender == contender]
    noisy = sum(record.noisy for record in runs)
    return f"{len(runs)}, {noisy} noisy" if noisy else str(len(runs))


def _median(cell: Sequence[Record], contender: str, value: Value) -> float | None:
    """Over the quiet runs; over all where none was quiet."""
    runs = [record for record in cell if record.contender == contender]
    quiet = [record for record in runs if not record.noisy]
    known = [number for number in map(value, quiet or runs) if number is not None]
    return statistics.median(known) if known else None


def _shown(number: float | None, digits: int) -> str:
    return "-" if number is None else f"{number:.{digits}f}"
