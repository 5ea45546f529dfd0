"""What lies where in a checkpoint: any cut of a state is read by any other cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oarlock_trainer.checkpoint.layout import ELEMENT, Layout, Run


def cut(size: int, ranks: int, rank: int) -> tuple[int, int]:
    return size * rank // ranks, size * (rank + 1) // ranks


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    writers=st.integers(1, 9),
    readers=st.integers(1, 9),
    flat=st.booleans(),
)
@example(sizes=[3], writers=8, readers=1, flat=False)
@example(sizes=[3], writers=8, readers=2, flat=False)
def test_every_element_is_found_where_it_was_written(
    sizes: list[int], writers: int, readers: int, *, flat: bool
) -> None:
    """Written by each tensor's even shares, some of them empty, or by even shares of all in a row, as ZeRO does."""
    files: dict[str, list[Run]] = {}
    content: dict[str, list[tuple[str, int]]] = {}
    for rank in range(writers):
        first, last = cut(sum(sizes), writers, rank)
        offset = 0
        for number, size in enumerate(sizes):
            start, end = cut(size, writers, rank)
            if flat:
                start, end = max(first - offset, 0), min(last - offset, size)
            offset += size
            if flat and start >= end:
                continue
            files.setdefault(f"f{rank}", []).append(Run(f"p{number}", "master", start, end - start))
            content.setdefault(f"f{rank}", []).extend((f"p{number}", element) for element in range(start, end))
    layout = Layout(files)
    for rank in range(readers):
        for number, size in enumerate(sizes):
            start, end = cut(size, readers, rank)
            got: list[tuple[str, int]] = []
            for piece in layout.pieces(Run(f"p{number}", "master", start, end - start)):
                assert piece.into == len(got)
                at = piece.offset // ELEMENT
                got += content[piece.file][at : at + piece.length]
            assert got == [(f"p{number}", element) for element in range(start, end)]


@pytest.mark.parametrize("wanted", [Run("p", "master", 0, 11), Run("p", "master", 12, 1), Run("q", "master", 0, 1)])
def test_what_is_in_no_file_is_an_error(wanted: Run) -> None:
    layout = Layout({"a": [Run("p", "master", 0, 4), Run("p", "exp_avg", 0, 4)], "b": [Run("p", "master", 4, 6)]})
    assert [(piece.file, piece.length) for piece in layout.pieces(Run("p", "master", 2, 5))] == [("a", 2), ("b", 3)]
    with pytest.raises(KeyError):
        list(layout.pieces(wanted))
