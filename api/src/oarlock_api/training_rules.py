"""The rule that every S3 location names a connection that exists.

The places that may hold a location are listed here by path, since CEL can't walk a tree. A test compares the list with
the models, so that a new location can't be forgotten.
"""

from collections.abc import Iterator
from typing import Any

from oarlock_api.naming import camel_case
from oarlock_api.rules import Rule

LOCATIONS: tuple[str, ...] = (
    "model.s3",
    "init_from.s3",
    "checkpoint.upload",
    "validation.prompts_from.s3",
    "validation.references.s3",
    "publish[].s3",
    "data.text_embeds.s3",
    "data.image_embeds.s3",
    "data.datasets[].source.s3",
    "data.datasets[].conditioning.source.s3",
    "data.datasets[].metadata.parquet.location.s3",
    "data.datasets[].image_embeds.location.s3",
)
"""Paths below spec.training to every S3 location; `[]` = each entry."""


def s3_connections_exist() -> tuple[Rule, ...]:
    """One rule per place, so that the message can name it."""
    return tuple(_rule(path) for path in LOCATIONS)


def _rule(path: str) -> Rule:
    shown = ".".join(camel_case(part) for part in path.split("."))
    return Rule(
        cel=_cel("self", path),
        message=f"training.{shown}: its connection (default, if none is set) is no entry of training.s3Connections; "
        "add the entry, or correct the name",
        holds=lambda training: all(_known(training, location.connection) for location in _walk(training, path)),
    )


def _cel(root: str, path: str) -> str:
    """CEL over one path: guarded by has() where a step may be absent, by all() where it is a list."""
    head, _, tail = path.partition("[].")
    parts = [camel_case(part) for part in head.split(".")]
    if tail:
        owner = ".".join([root, *parts])
        item = parts[-1][0]
        return f"{_guards(root, parts)} || {owner}.all({item}, {_cel(item, tail)})"
    location = ".".join([root, *parts])
    known = f"(has(self.s3Connections) && self.s3Connections.exists(x, x.name == {location}.connection))"
    return f"{_guards(root, parts)} || {known}"


def _guards(root: str, parts: list[str]) -> str:
    prefixes = [".".join([root, *parts[: length + 1]]) for length in range(len(parts))]
    return " || ".join(f"!has({prefix})" for prefix in prefixes)


def _walk(value: Any, path: str) -> Iterator[Any]:
    if value is None:
        return
    if not path:
        yield value
        return
    head, _, tail = path.partition(".")
    if head.endswith("[]"):
        for item in getattr(value, head.removesuffix("[]")):
            yield from _walk(item, tail)
    else:
        yield from _walk(getattr(value, head), tail)


def _known(training: Any, name: str) -> bool:
    return any(connection.name == name for connection in training.s3_connections)
