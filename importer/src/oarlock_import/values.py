"""Reading one value of a configuration, which may be a JSON value or the words of a command line."""

from __future__ import annotations

import json
import math
import re
import shlex
from typing import Any

from oarlock_import.rows import Kind

_SWITCHES = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_ELSEWHERE = re.compile(r"\{env:|\$\{")
"""Marks of a value that is put together where SimpleTuner runs: {env:NAME} and ${NAME}."""
_COMPUTED = "a shell's command makes its value, and none is run here; write what the command prints"


class Computed(str):
    """Text with a command in it, which only a shell runs: $(command), or `command`."""

    __slots__ = ()


class Unread(str):
    """Value of a variable of config.env that SimpleTuner itself does not read."""

    __slots__ = ()


class Part(str):
    """Value of a variable that other lines of config.env are put together from."""

    __slots__ = ()


def is_absent(value: Any) -> bool:
    """SimpleTuner drops these, so that its default counts."""
    return value is None or value == ""


def read(kind: Kind, value: Any) -> Any:
    """The value as int, float, bool, str, or as it is.

    Raises ValueError, in words for a person, where it is none of the kind.
    """
    if isinstance(value, Computed):
        raise ValueError(_COMPUTED)  # noqa: TRY004 - told to a person
    if isinstance(value, str) and _ELSEWHERE.search(value):
        raise ValueError("takes its value from an environment that is not here; write the value itself")
    if kind is Kind.ANY:
        return value
    if kind is Kind.SWITCH:
        return _switch(value)
    if kind is Kind.WORD and isinstance(value, bool):
        return "yes" if value else "no"
    if kind in (Kind.TEXT, Kind.WORD, Kind.NAME):
        if isinstance(value, bool | dict | list):
            raise ValueError("is no text: write a word, in quotes")
        return str(value).strip().lower().replace("-", "_") if kind is Kind.NAME else str(value)
    number = _number(value, such_as="8" if kind is Kind.WHOLE else "0.1")
    if kind is Kind.NUMBER:
        return number
    if not number.is_integer():
        raise ValueError("is no whole number: write one such as 8")
    return int(number)


def refuse_placeholder(text: str) -> None:
    """Raise ValueError where a part of a text is left for a person to fill in, as <YOUR OUTPUT DIR> is."""
    if (left := re.search(r"<[A-Za-z][^<>]*>", text)) is not None:
        raise ValueError(f"{left[0]} stands for something that is not written here: fill it in")


def asks_for_nothing(value: Any, unless: tuple[Any, ...]) -> bool:
    """Tell whether a value is one of `unless`, written in whichever way."""
    return any(_plain(value) == _plain(harmless) for harmless in unless)


def as_json(value: Any) -> Any:
    """Parse a value that may be inline JSON; what is none stays as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from error
    return value


def arguments(text: str) -> dict[str, Any]:
    """Options of a command line: --name=value, --name value, or --name alone for true.

    Raises ValueError where the quotes don't match, and where a shell's command is among the words.
    """
    if isinstance(text, Computed):
        raise ValueError(_COMPUTED)  # noqa: TRY004 - told to a person
    found: dict[str, Any] = {}
    name = ""
    for word in shlex.split(text):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            found[name] = value if equals else True
        elif name:
            found[name] = word
    return found


def _switch(value: Any) -> bool:
    found = _SWITCHES.get(str(value).strip().lower())
    if found is None:
        raise ValueError("is neither true nor false: write one of them")
    return found


def _number(value: Any, *, such_as: str) -> float:
    if isinstance(value, bool):
        raise ValueError(f"is no number: write one such as {such_as}")  # noqa: TRY004 - told to a person
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"is no number: write one such as {such_as}") from None
    if not math.isfinite(number):
        raise ValueError(f"is no finite number: write one such as {such_as}")
    return number


def _plain(value: Any) -> Any:
    """One spelling for true/"True"/"1", 1/1.0/"1" and the like."""
    text = str(value).strip().lower()
    if isinstance(value, bool) or text in ("true", "false"):
        return float(text == "true")
    try:
        return float(text)
    except ValueError:
        return text
