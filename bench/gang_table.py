"""The table of a run: medians of the operator beside those of the floor."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from measuring import Record

HEAD = f"{'scenario':<16}{'size':>9}  {'':<22}{'operator':>12}{'floor':>12}{'ratio':>8}   runs"
Value = Callable[[Record], "float | None"]


def table(records: Sequence[Record]) -> str:
    """One line per scenario, size and measure, in the order in which they were measured."""
    lines = [HEAD]
    for scenario, size in dict.fromkeys((record.scenario, record.size) for record in records):
        cell = [record for record in records if (record.scenario, record.size) == (scenario, size)]
        for name, value, digits in _measures(cell):
            operator, floor = (_median(cell, contender, value) for contender in ("operator", "floor"))
            ratio = f"{operator / floor:>8.2f}" if operator is not None and floor else f"{'':>8}"
            runs = "+".join(str(sum(r.contender == c for r in cell)) for c in ("operator", "floor"))
            cells = f"{_shown(operator, digits):>12}{_shown(floor, digits):>12}{ratio}"
            lines.append(f"{scenario:<16}{size:>9}  {name:<22}{cells}   {runs}")
            scenario, size = "", ""  # noqa: PLW2901 - told once is enough
    return "\n".join(lines)


def one_line(record: Record) -> str:
    """A record while the run goes on."""
    times = "  ".join(f"{name} {seconds:.2f}" for name, seconds in record.times.items()) or "not decided in time"
    costs = f"cpu {record.cpu_seconds:.2f} s  peak {record.peak_mib:.0f} MiB"
    noise = f"  (others used {record.others_cores:.2f} cores)" if record.others_cores > 0.25 else ""
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
    for verb in sorted({verb for record in cell for verb in record.calls}):
        yield f"{verb}, requests", lambda record, verb=verb: record.calls.get(verb), 0  # type: ignore[misc]
    if any(record.calls for record in cell):
        yield "all requests", lambda record: sum(record.calls.values()) or None, 0


def _median(cell: Sequence[Record], contender: str, value: Value) -> float | None:
    found = [value(record) for record in cell if record.contender == contender]
    known = [number for number in found if number is not None]
    return statistics.median(known) if known else None


def _shown(number: float | None, digits: int) -> str:
    return "-" if number is None else f"{number:.{digits}f}"
