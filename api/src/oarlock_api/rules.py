"""Rules over several fields, written once for both places that check them.

A rule stands beside the model that it constrains and says the same thing twice: as CEL for the API server, and as a
Python predicate for whoever reads a manifest without a cluster. Both refuse with the same message, which says how to
mend the manifest. A transition rule (it compares with the stored object) has no Python side: only the server knows
what was stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from oarlock_api.naming import camel_case

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

VALIDATIONS = "x-kubernetes-validations"
ACCEPTED = {"accepted": True}
"""Context of a validation: of a job that was accepted once, `only_new` rules are not asked."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One admission rule: on a model through its `admission`, on a field as `Annotated` metadata."""

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    """The rule in Python, over the parsed value; None for a transition rule."""
    name_cel: str = ""
    """What breaks it, by name, in CEL: it stands before the message. A list's items are told by their number alone."""
    name: Callable[[Any], str] | None = None
    """The same in Python."""
    only_new: bool = False
    """On a field: it came with a later release, to help whoever writes a job; nothing relies on it."""

    def check(self, value: Any) -> None:
        """Refuse a value that breaks the rule, with the words that the API server would use."""
        if self.holds is not None and not self.holds(value):
            named = f"{self.name(value)}: " if self.name else ""
            raise PydanticCustomError("rule", "{message}", {"message": named + self.message})

    def as_schema(self) -> dict[str, str]:
        """Write the rule as an entry of x-kubernetes-validations."""
        named = {"messageExpression": f"{self.name_cel} + ': {self.message}'"} if self.name_cel else {}
        return {"rule": self.cel, "message": self.message, **named}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def checked(value: Any, info: ValidationInfo) -> Any:
            if not (self.only_new and info.context == ACCEPTED):
                self.check(value)
            return value

        return core_schema.with_info_after_validator_function(checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        result.setdefault(VALIDATIONS, []).append(self.as_schema())
        return result


@dataclass(frozen=True, slots=True)
class ListMap:
    """`Annotated` metadata for a list whose items one field tells apart: no duplicates, merged by that key."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def distinct(items: Any) -> Any:
            return _refuse_duplicates(
                items, lambda item: item[camel_case(self.key)] if isinstance(item, dict) else getattr(item, self.key)
            )

        return core_schema.no_info_after_validator_function(distinct, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        return {
            **result,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [camel_case(self.key)],
        }


@dataclass(frozen=True, slots=True)
class ListSet:
    """`Annotated` metadata for a list of distinct scalars."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def distinct(items: Any) -> Any:
            return _refuse_duplicates(items, lambda item: item)

        return core_schema.no_info_after_validator_function(distinct, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "x-kubernetes-list-type": "set"}


def _refuse_duplicates(items: Any, key: Callable[[Any], Hashable]) -> Any:
    seen: set[Hashable] = set()
    for item in items:
        if key(item) in seen:
            raise PydanticCustomError("duplicate", "Duplicate value: {value}", {"value": str(key(item))})
        seen.add(key(item))
    return items


def is_set(value: object) -> bool:
    """Whether a field was given: the Python side of CEL's has(). An empty list counts as absent."""
    return value is not None and value != ()


def _given(fields: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"has(self.{camel_case(field)})" for field in fields) + "]"


def exactly_one(*fields: str, message: str) -> Rule:
    """One of these fields, and no other of them."""
    return Rule(
        cel=f"{_given(fields)}.exists_one(x, x)",
        message=message,
        holds=lambda group: sum(is_set(getattr(group, field)) for field in fields) == 1,
    )


def at_most_one(*fields: str, message: str) -> Rule:
    """One of these fields or none."""
    return Rule(
        cel=f"{_given(fields)}.filter(x, x).size() <= 1",
        message=message,
        holds=lambda group: sum(is_set(getattr(group, field)) for field in fields) <= 1,
    )


def at_least_one(*fields: str, message: str) -> Rule:
    """One of these fields or more."""
    return Rule(
        cel=f"{_given(fields)}.exists(x, x)",
        message=message,
        holds=lambda group: any(is_set(getattr(group, field)) for field in fields),
    )


def only_when(field: str, *, setting: str, allowed: tuple[str, ...], message: str) -> Rule:
    """`field` may be given only while the sibling enum `setting` has one of the allowed values."""
    values = ", ".join(f"'{value}'" for value in allowed)
    return Rule(
        cel=f"!has(self.{camel_case(field)}) || self.{camel_case(setting)} in [{values}]",
        message=message,
        holds=lambda group: not is_set(getattr(group, field)) or getattr(group, setting) in allowed,
    )


def ordered(low: str, high: str, *, message: str) -> Rule:
    """`low` <= `high` where both are given."""
    first, second = camel_case(low), camel_case(high)
    return Rule(
        cel=f"!has(self.{first}) || !has(self.{second}) || self.{first} <= self.{second}",
        message=message,
        holds=lambda group: (
            getattr(group, low) is None or getattr(group, high) is None or getattr(group, low) <= getattr(group, high)
        ),
    )
