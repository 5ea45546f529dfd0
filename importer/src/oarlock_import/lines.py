"""Which line of its file an option stands in, so that a refusal can name it.

What is known by its place is written as in the report: a source such as multidatabackend.json[boats], and a key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

Lines = dict[tuple[str, str], int]
"""Groups around a key, as in "[boats][parquet]", and the key -> its line, from 1 on."""


def of_text(text: str, suffix: str) -> Lines:
    """Lines of the keys of a JSON, YAML or TOML file; empty where they cannot be told."""
    if suffix == ".toml":
        keys = (re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line) for line in text.splitlines())
        return {("", key[1]): number for number, key in enumerate(keys, start=1) if key}
    try:
        # JSON is YAML, but for tabs between its words; inside of its texts there are none.
        root = yaml.compose(text.replace("\t", " ") if suffix == ".json" else text, Loader=yaml.SafeLoader)
        found: Lines = {}
        if root is not None:
            _walk(root, "", found, set())
    except (yaml.YAMLError, RecursionError):
        return {}
    return found


def line_of(lines: Mapping[tuple[str, str], int], source: str, key: str) -> int | None:
    """The line of a key, or of the group that it is missing in; None where neither is known."""
    while (source, key) not in lines:
        source, bracket, group = source.rpartition("[")
        if not bracket:
            return None
        if (source, group.removesuffix("]")) in lines:
            return lines[source, group.removesuffix("]")]
    return lines[source, key]


def _walk(node: yaml.Node, above: str, found: Lines, seen: set[int]) -> None:
    """Note every key below a node, by its groups' names; members of a list by their id, or else by their number."""
    if id(node) in seen:  # a YAML alias: its keys stand where its anchor is
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found.setdefault((above, str(key.value).lstrip("-")), key.start_mark.line + 1)
            _walk(value, f"{above}[{key.value}]", found, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, entry in enumerate(node.value, start=1):
            keys = entry.value if isinstance(entry, yaml.MappingNode) else []
            name = next((str(value.value) for key, value in keys if key.value == "id"), str(number))
            for key in (name, f"entry {number}"):
                found.setdefault((above, key), entry.start_mark.line + 1)
            _walk(entry, f"{above}[{name}]", found, seen)
