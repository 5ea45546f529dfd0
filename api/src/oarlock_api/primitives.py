"""The scalar types that manifests are made of, each with its bounds.

Every string is bounded: the API server multiplies the largest possible size into the cost of each CEL rule and refuses
a CRD whose rules could become too expensive.
"""

from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, StrictFloat, StrictInt, WithJsonSchema

Word = Annotated[str, Field(min_length=1, max_length=128)]
"""An identifier of somebody else: a column, a repository, a region."""

Text = Annotated[str, Field(max_length=1024)]
"""One line for people."""

LongText = Annotated[str, Field(max_length=8192)]
"""A prompt or a paragraph."""

Label = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""An RFC 1123 label: names of list entries."""

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
"""A Kubernetes object's name (an RFC 1123 subdomain)."""

QualifiedName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
"""A label key or an extended resource, with or without a domain."""

AbsolutePath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/")]
"""A path inside the pod."""

Url = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+$")]

EnvName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]

LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]

Seconds = Annotated[StrictInt, Field(ge=0, le=31_536_000)]
"""A duration of at most a year."""

Port = Annotated[StrictInt, Field(ge=1024, le=65535)]

Step = Annotated[StrictInt, Field(ge=0, le=1_000_000_000)]
"""A number of optimizer steps."""

Probability = Annotated[StrictFloat, Field(ge=0, le=1)]

Unstructured = dict[str, Any]
"""A piece of the pod API that is passed on as it is; the API server checks it when the pod is made."""

Time = AwareDatetime

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?$"


EVERY_STEPS_PATTERN = "^(Auto|0|[1-9][0-9]{0,8})$"


def _as_text(value: object) -> object:
    # YAML reads `minFree: 1000` as a number, and Kubernetes accepts it as a quantity.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(max_length=32, pattern=QUANTITY_PATTERN),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": 32}),
]
"""An amount of memory or disk in Kubernetes' notation, such as 200Gi."""

EverySteps = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(max_length=9, pattern=EVERY_STEPS_PATTERN),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": EVERY_STEPS_PATTERN, "maxLength": 9}),
]
"""A number of optimizer steps, 0 = never, or Auto."""
