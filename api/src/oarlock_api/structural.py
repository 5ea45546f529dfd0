"""From pydantic's JSON schema to the structural schema that a CRD may hold.

Kubernetes takes a subset of OpenAPI 3.0: no references, no `anyOf` over types, no null, boolean `exclusiveMinimum`, and
every object either lists its properties or is open. Whatever pydantic writes beyond that is translated here, or refused
with its path, so that nothing is lost in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_api.rules import VALIDATIONS

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]

_OPEN = "x-kubernetes-preserve-unknown-fields"
_COPIED = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
_TRANSLATED = {
    "title",
    "default",
    "const",
    "items",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "exclusiveMinimum",
    "exclusiveMaximum",
    VALIDATIONS,
}


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """Translate one model; without `defaults` for the status, where the API server must fill nothing in."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _Translation(raw.pop("$defs", {}), defaults=defaults).node(raw, model.__name__)


class _Translation:
    def __init__(self, definitions: dict[str, Schema], *, defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def node(self, raw: Schema, path: str) -> Schema:
        raw = self._flatten(raw, path)
        if unknown := raw.keys() - _TRANSLATED - set(_COPIED):
            raise ValueError(f"{path}: a structural schema has no {', '.join(sorted(unknown))}; use another type")
        schema: Schema = {key: raw[key] for key in _COPIED if key in raw}
        if "const" in raw:
            schema["enum"] = [raw["const"]]
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if exclusive in raw:
                schema |= {bound: raw[exclusive], exclusive: True}
        if schema.get("type") == "object":
            self._object(raw, schema, path)
        if schema.get("type") == "array":
            schema["items"] = self.node(raw["items"], f"{path}[]")
            schema.setdefault("x-kubernetes-list-type", "atomic")
        if VALIDATIONS in raw:
            schema[VALIDATIONS] = raw[VALIDATIONS]
        if self._defaults and raw.get("default") is not None:
            _set_default(schema, raw["default"])
        return schema

    def _object(self, raw: Schema, schema: Schema, path: str) -> None:
        if "properties" in raw:
            schema["properties"] = {
                name: self.node(child, f"{path}.{name}") for name, child in raw["properties"].items()
            }
        if raw.get("required"):
            schema["required"] = raw["required"]
        further = raw.get("additionalProperties", False)
        if further is True:
            schema[_OPEN] = True
        elif further:
            schema["additionalProperties"] = self.node(further, f"{path}{{}}")

    def _flatten(self, raw: Schema, path: str) -> Schema:
        """Put a reference, or the one alternative to null, in the place of the field that holds it.

        What the field itself says (its description above all) outranks what its type says.
        """
        if "$ref" in raw:
            definition = self._definitions[raw["$ref"].removeprefix("#/$defs/")]
            own = {key: value for key, value in raw.items() if key != "$ref"}
            return self._flatten({**definition, **own}, path)
        if "anyOf" in raw:
            kinds = [kind for kind in raw["anyOf"] if kind.get("type") != "null"]
            if len(kinds) != 1:
                raise ValueError(f"{path}: a field of several types is not structural; give it one type")
            own = {key: value for key, value in raw.items() if key != "anyOf"}
            return self._flatten({**kinds[0], **own}, path)
        return raw


def _set_default(schema: Schema, default: Any) -> None:
    """Default of a field.

    A group starts out empty and its own fields bring their defaults, but CEL looks at the group before they do. So a
    group with rules of its own gets the defaults of its fields at once. An empty list or map means the same as none.
    """
    if "properties" in schema:
        own = {name: child["default"] for name, child in schema["properties"].items() if "default" in child}
        schema["default"] = own if VALIDATIONS in schema else {}
    elif default not in ([], {}):
        schema["default"] = default
