"""docs/webhook-v1.schema.json, and whether a payload is what it says: of JSON schema, just what that file uses.

Stricter than the schema in one thing: a field that it does not name is a complaint, so that none is sent undocumented.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

SCHEMA = json.loads((Path(__file__).parents[4] / "docs/webhook-v1.schema.json").read_text(encoding="utf-8"))
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_KNOWN = {"type", "const", "enum", "pattern", "minimum", "maxItems", "required", "properties", "items", "$ref", "oneOf"}
_WORDS = {"description", "title", "format", "$schema", "$id", "$defs"}


def complaints(payload: Any) -> list[str]:
    """What is wrong with a payload; empty = nothing."""
    kinds = [SCHEMA["$defs"][one["$ref"].rpartition("/")[2]] for one in SCHEMA["oneOf"]]
    fitting = [kind for kind in kinds if kind["properties"]["type"]["const"] == payload.get("type")]
    if len(fitting) != 1:
        return [f"{len(fitting)} schemas for {payload.get('type')}"]
    found = _check(payload, {**SCHEMA, "oneOf": []}, "") + _check(payload, fitting[0], "")
    named = SCHEMA["properties"].keys() | fitting[0]["properties"].keys()
    return found + [f".{name}: is not described" for name in payload.keys() - named]


def _check(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    if unknown := schema.keys() - _KNOWN - _WORDS:
        raise AssertionError(f"the test's reader does not know {unknown}")
    if "$ref" in schema:
        return _check(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    types = schema.get("type", list(_TYPES))
    if not any(_is(value, kind) for kind in ([types] if isinstance(types, str) else types)):
        return [f"{where}: {value!r} is no {types}"]
    found = _check_value(value, schema, where)
    if isinstance(value, dict):
        found += _check_object(value, schema, where)
    if isinstance(value, list):
        found += ["too many items"] if len(value) > schema.get("maxItems", len(value)) else []
        found += [line for place, one in enumerate(value) for line in _check(one, schema["items"], f"{where}[{place}]")]
    return found


def _check_value(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    rules = {
        "const": lambda rule: value == rule,
        "enum": lambda rule: value in rule,
        "pattern": lambda rule: re.search(rule, value),
        "minimum": lambda rule: value >= rule,
    }
    broken = [name for name, holds in rules.items() if name in schema and not holds(schema[name])]
    return [f"{where}: {value!r} breaks {name} {schema[name]!r}" for name in broken]


def _check_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    described = schema.get("properties", {})
    found = [f"{where}.{name}: is missing" for name in schema.get("required", []) if name not in value]
    for name in value.keys() & described.keys():
        found += _check(value[name], described[name], f"{where}.{name}")
    if where:  # what the top holds is divided between two schemas
        found += [f"{where}.{name}: is not described" for name in value.keys() - described.keys()]
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
