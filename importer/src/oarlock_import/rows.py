"""A row of a table: what becomes of one option of SimpleTuner, accelerate or DeepSpeed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fate(StrEnum):
    """What becomes of an option."""

    MAPPED = "mapped"
    IGNORED = "ignored"
    REFUSED = "refused"


class Kind(StrEnum):
    """How an option's value is read."""

    WHOLE = "whole number"
    NUMBER = "number"
    SWITCH = "true or false"
    TEXT = "text"
    WORD = "a word that YAML may have taken for true or false, such as NO"
    NAME = "a name, whose dashes are underscores"
    ANY = "anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One option."""

    key: str
    fate: Fate
    kind: Kind = Kind.ANY
    to: str = ""
    """Field below spec that it goes to; for options that are judged together, the fields that they decide."""
    default: Any = None
    """SimpleTuner's own default. It is written into the job where the option is absent, unless it is None."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Their word -> ours; a word that is not here is refused."""
    why: str = ""
    unless: tuple[Any, ...] = ()
    """Values of a refused option that ask for nothing: they are ignored."""
    judged: bool = False
    """A function decides, together with other options."""
    aliases: tuple[str, ...] = ()


def mapped(
    key: str,
    to: str,
    kind: Kind,
    *,
    default: Any = None,
    words: Mapping[str, str] | None = None,
    judged: bool = False,
    aliases: tuple[str, ...] = (),
) -> Row:
    """An option that is one field of the job."""
    return Row(
        key=key,
        fate=Fate.MAPPED,
        kind=kind,
        to=to,
        default=default,
        words=words or {},
        judged=judged,
        aliases=aliases,
    )


judged = partial(mapped, judged=True)
"""An option that is read together with others."""


def ignored(why: str, keys: str) -> tuple[Row, ...]:
    """Options that change nothing that a job has; `keys` are separated by spaces."""
    return tuple(Row(key=key, fate=Fate.IGNORED, why=why) for key in keys.split())


def refused(why: str, keys: str, unless: tuple[Any, ...] = ()) -> tuple[Row, ...]:
    """Options that ask for what a job does not have; null, false and `unless` ask for nothing."""
    return tuple(Row(key=key, fate=Fate.REFUSED, why=why, unless=(False, *unless)) for key in keys.split())


def at_default(row: Row, defaults: Mapping[str, Any]) -> Row:
    """A row for which an option that is refused asks for nothing at SimpleTuner's own default."""
    default = defaults.get(row.key)
    asks = row.fate is not Fate.REFUSED or default in (None, "", *row.unless)
    return row if asks else replace(row, unless=(*row.unless, default))


def table(*rows: Row) -> dict[str, Row]:
    """Rows by key and by alias.

    Raises ValueError where two rows claim a name.
    """
    found: dict[str, Row] = {}
    for row in rows:
        for name in (row.key, *row.aliases):
            if name in found:
                raise ValueError(f"two rows for {name}")
            found[name] = row
    return found
