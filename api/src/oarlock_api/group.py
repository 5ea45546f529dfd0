"""The two base classes of everything in a TrainingJob.

A `Group` belongs to the spec: what it does not know it refuses, so that a misspelled field can't be lost. A
`StatusGroup` is read by programs of several versions: what it does not know it passes over.
"""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from oarlock_api.naming import camel_case
from oarlock_api.rules import VALIDATIONS, Rule

_SHARED = ConfigDict(
    alias_generator=camel_case,
    populate_by_name=True,
    frozen=True,
    allow_inf_nan=False,
    validate_default=False,
)


class Group(BaseModel):
    """A group of fields of the spec: immutable, strict about unknown fields, with rules over its fields."""

    model_config = ConfigDict(**_SHARED, extra="forbid")

    admission: ClassVar[tuple[Rule, ...]] = ()
    for_pods: ClassVar[tuple[str, ...] | None] = None
    """Of a section that pods are told: which of its fields, where the others are the operator's alone; None = all."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.admission:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        if cls.admission:
            handler.resolve_ref_schema(result)[VALIDATIONS] = [rule.as_schema() for rule in cls.admission]
        return result

    def to_manifest(self, *, defaults: bool = True) -> dict[str, Any]:
        """Write the group as in a manifest: camelCase, without what was not given; without what is at its `defaults`, too."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_defaults=not defaults, mode="json")


class StatusGroup(Group):
    """A group of fields of the status: like a `Group`, but fields of a later version are ignored."""

    model_config = ConfigDict(**_SHARED, extra="ignore")
