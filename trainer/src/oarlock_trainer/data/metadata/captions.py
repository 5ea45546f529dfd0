"""The texts of pictures: cleaned of white space and of what the filters match, with the data set's words before them."""

from __future__ import annotations

import re
from posixpath import basename, splitext
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oarlock_api.dataset import CaptionLines
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.dataset import Dataset

_SPACES = r"\x{9}-\x{D}\x{1C}-\x{1F}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
"""What str.split() takes for white space, but for the space itself."""
_UNTIDY = rf"^ | $|  |[{_SPACES}]"
"""Few captions are: the others need no look by Python, which ten million of them would notice."""


_INVISIBLE = r"^[\p{Cf}\s]+$"
"""Marks without a picture, such as a space of no width."""
_LINE_ENDS = r"\r\n|\r|\n"


class Wording:
    """How a data set's captions are cleaned. `draws_lines`: each line of a text is a caption."""

    def __init__(self, dataset: Dataset) -> None:
        """Raises ConfigurationError where a filter is no regular expression."""
        self._filters = [_compiled(pattern, dataset.name) for pattern in dataset.captions.filters]
        self._prepend = (dataset.captions.prepend or "").strip()
        self.draws_lines = dataset.captions.lines is CaptionLines.DRAWN

    def clean(self, texts: pa.Array) -> pa.Array:
        """(n,) strings from (n,) strings or nulls: null where nothing is left."""
        if self._filters:
            texts = pa.array(
                [None if text is None else self._filtered(text) for text in texts.to_pylist()], pa.string()
            )
        if _may_be_untidy(texts):
            untidy = pc.fill_null(pc.match_substring_regex(texts, _UNTIDY), fill_value=False)
            tidy = [" ".join(text.split()) for text in texts.filter(untidy).to_pylist()]
            texts = pc.replace_with_mask(texts, untidy, pa.array(tidy, pa.string()))
            invisible = pc.fill_null(pc.match_substring_regex(texts, _INVISIBLE), fill_value=False)
            texts = pc.if_else(invisible, pa.scalar("", pa.string()), texts)
        empty = pc.equal(texts, "")
        if pc.any(empty).as_py():
            texts = pc.if_else(empty, pa.scalar(None, pa.string()), texts)
        return pc.binary_join_element_wise(self._prepend, texts, " ") if self._prepend else texts

    def _filtered(self, text: str) -> str:
        for pattern in self._filters:
            text = pattern.sub("", text)
        return text


def _may_be_untidy(texts: pa.Array) -> bool:
    """A look at the bytes of all texts at once, three times as quick as the expression: False where none is untidy."""
    _, offsets, content = texts.buffers()
    if content is None or not len(texts):
        return False
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
    if not len(letters):
        return False
    # Spaces other than the space itself are controls or beyond ASCII.
    if letters.min() < 0x20 or letters.max() > 0x7F:
        return True
    spaces = letters == 0x20
    filled = ends[:-1] < ends[1:]
    edges = np.concatenate([ends[:-1][filled], ends[1:][filled] - 1]) - ends[0]
    return bool((spaces[1:] & spaces[:-1]).any() or spaces[edges].any())


def from_name(name: str) -> str:
    """The text that a file's name says."""
    return re.sub(r"[_\-]+", " ", splitext(basename(name))[0])


def gathered(columns: Sequence[pa.Array], fallback: pa.Array | None, wording: Wording) -> pa.Array:
    """(n,) lists of cleaned captions: of each row all that its cells hold, else what the fallback column's does.

    Columns hold strings or lists of strings.
    """
    count = len(columns[0])
    rows, texts = _together(columns, wording)
    if fallback is not None:
        empty = np.bincount(rows, minlength=count) == 0
        if empty.any():
            places, cells = _together([fallback], wording)
            wanted = empty[places]
            rows = np.concatenate([rows, places[wanted]])
            texts = pa.concat_arrays([texts, cells.filter(pa.array(wanted))])
    if len(columns) > 1 or fallback is not None:
        order = np.argsort(rows, kind="stable")
        rows, texts = rows[order], texts.take(pa.array(order))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), texts)


def one_each(texts: pa.Array, wording: Wording) -> pa.Array:
    """(n,) lists of one cleaned caption, or of none; of one for each line, where lines are drawn."""
    return gathered([pc.split_pattern_regex(texts, _LINE_ENDS) if wording.draws_lines else texts], None, wording)


def _together(columns: Sequence[pa.Array], wording: Wording) -> tuple[np.ndarray, pa.Array]:
    """The row and the cleaned text of every caption of some columns."""
    cells = [_cells(column) for column in columns]
    rows = np.concatenate([some for some, _ in cells])
    texts = wording.clean(pa.concat_arrays([some for _, some in cells]) if len(cells) > 1 else cells[0][1])
    if not texts.null_count:
        return rows, texts
    valid = texts.is_valid()
    return rows[valid.to_numpy(zero_copy_only=False)], texts.filter(valid)


def _cells(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    if pa.types.is_list(column.type):
        return pc.list_parent_indices(column).to_numpy(), column.flatten()
    return np.arange(len(column)), column


def _compiled(pattern: str, dataset: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f'dataset "{dataset}": captions.filters: {pattern!r} is no regular expression: {error}'
        ) from error
