"""JSON objects -> those columns alone that are asked for, and texts as they stand there: no date is made of "2024-01-01".

Arrow reads them at once where all cells of a column are of the kind that it has been told. Where they are not, as with a text
in one line and a list of texts in another, or numbers among texts, Python reads them, one by one.
"""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Numbers stay as they are written: a caption 007 is no 7."""
_SPACES = " \t\r\n"


class JsonError(ValueError):
    """Text that is no JSON objects, or that has something in a cell that is no text: says where."""


def sketch(body: bytes, texts: Collection[str], numbers: Collection[str]) -> tuple[list[str], pa.Schema, int]:
    """Names of all columns of some objects, a schema for those that are wanted, and how many objects there are.

    Of those that hold `texts` the first cell that is not null says whether they are lists. Raises JsonError.
    """
    names: dict[str, None] = {}
    first: dict[str, Any] = {}
    count = 0
    for one in _objects(body):
        count += 1
        names |= dict.fromkeys(one)
        for name in texts:
            if first.get(name) is None:
                first[name] = one.get(name)
    kinds = {name: pa.list_(pa.string()) if isinstance(first.get(name), list) else pa.string() for name in texts}
    return list(names), pa.schema(list((kinds | dict.fromkeys(numbers, pa.float64())).items())), count


def read_cells(body: bytes, schema: pa.Schema) -> pa.Table:
    """The columns of a schema. One may be of another type than there: texts instead of lists or numbers, or the other way.

    Raises JsonError.
    """
    if not body.strip(_SPACES.encode()):
        return schema.empty_table()
    _text(body)  # Arrow takes any bytes for text
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pa.json.ReadOptions(block_size=len(body))
    try:
        return pa.json.read_json(pa.BufferReader(body), read_options=reading, parse_options=options)
    except pa.ArrowInvalid:
        objects = list(_objects(body))
        return pa.table({field.name: _column(field, [one.get(field.name) for one in objects]) for field in schema})


def _objects(body: bytes) -> Iterator[dict[str, Any]]:
    text, at = _text(body), 0
    while at < len(text):
        if text[at] in _SPACES:
            at += 1
            continue
        try:
            one, end = _DECODER.raw_decode(text, at)
        except ValueError as error:
            raise JsonError(f"line {_line(text, getattr(error, 'pos', at))}: {error}") from error
        if not isinstance(one, dict):
            raise JsonError(f"line {_line(text, at)}: no object")
        yield one
        at = end


def _text(body: bytes) -> str:
    try:
        return body.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise JsonError(f"line {line}: not UTF-8 (byte {body[error.start]:#04x}): save it as UTF-8") from error


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _column(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    try:
        if pa.types.is_floating(field.type):
            return _numbers(cells)
        if any(isinstance(cell, list) for cell in cells):
            lists = [cell if isinstance(cell, list) or cell is None else [cell] for cell in cells]
            return pa.array([cell and [_word(one) for one in cell] for cell in lists], pa.list_(pa.string()))
        return pa.array([_word(cell) for cell in cells], pa.string())
    except ValueError as error:
        raise JsonError(f'"{field.name}": {error}') from error


def _numbers(cells: Sequence[Any]) -> pa.Array:
    """As text where one is no number: what a column of texts is worth, its reader says."""
    texts = [_word(cell) for cell in cells]
    try:
        return pa.array([None if text is None else float(text) for text in texts], pa.float64())
    except ValueError:
        return pa.array(texts, pa.string())


def _word(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    raise ValueError(f"{json.dumps(cell)[:80]} is neither a text nor a list of texts")
