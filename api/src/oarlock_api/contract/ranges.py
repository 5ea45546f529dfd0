"""Whole numbers as people write many of them: 0-3,8."""

from __future__ import annotations

from collections.abc import Iterable


def as_ranges(numbers: Iterable[int], *, separator: str = ",") -> str:
    """Each once, in order; empty for none."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return separator.join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def from_ranges(text: str | None) -> frozenset[int]:
    """What as_ranges wrote, with commas. Raises ValueError where it is something else."""
    ends = [part.partition("-") for part in (text or "").split(",") if part]
    return frozenset(number for first, _, last in ends for number in range(int(first), int(last or first) + 1))
