"""Names in a pod that belong to Oarlock, and the rules that keep a job off them.

A job that set MASTER_ADDR or a scheduler's label by hand would train a gang of one, or jump the queue; it is refused
with the place where the same is said properly.
"""

import re
from typing import Annotated, Any

from pydantic import Field

from oarlock_api.contract.environment import RESERVED, SET_BY_THE_AGENT, SIMULATE_GPUS, is_reserved
from oarlock_api.group import Group
from oarlock_api.primitives import EnvName, LongText, Unstructured
from oarlock_api.rules import ListMap, Rule

RESERVED_KEY_PREFIXES = (
    "oarlock.dev/",
    "kueue.x-k8s.io/",
    "scheduling.x-k8s.io/",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "kai.scheduler/",
)
"""Labels and annotations that the operator or a gang scheduler sets."""

StringMap = Annotated[
    dict[Annotated[str, Field(max_length=316)], Annotated[str, Field(max_length=63)]], Field(max_length=64)
]


class EnvVar(Group):
    """An environment variable, in the words of the pod API."""

    name: EnvName = Field(description="Name.")
    value: LongText | None = Field(default=None, description="Value; or valueFrom.")
    value_from: Annotated[Unstructured, Field(max_length=1)] | None = Field(
        default=None, description="secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef, as in a pod."
    )


_NAMES = ", ".join(f"'{name}'" for name in sorted(RESERVED) if not name.startswith("OARLOCK_"))


def _free(item: Any) -> bool:
    return not is_reserved(item.name)


NO_RESERVED_ENV = Rule(
    cel=f"!(self.name in [{_NAMES}]) && (!self.name.startsWith('OARLOCK_') || self.name == '{SIMULATE_GPUS}')",
    message="this variable is set by Oarlock (nodes, gpusPerNode, pod.ports and output say what is in it), or begins with "
    "OARLOCK_, as only OARLOCK_SIMULATE_GPUS of a job may; remove it",
    holds=_free,
    name_cel="self.name",
    name=lambda item: item.name,
)

VALUE_OR_SOURCE = Rule(
    cel="!(has(self.value) && has(self.valueFrom))",
    message="an environment variable has either value or valueFrom; remove one",
    holds=lambda item: item.value is None or item.value_from is None,
)

_SET_BY_THE_AGENT = "[" + ", ".join(f"'{name}'" for name in SET_BY_THE_AGENT) + "]"
_REFERS = "self.value.replace('$$', '').contains('$(' + n + ')')"
"""As Kubernetes reads it: two dollars are one that is text, and so is what follows them."""


_REFERENCE = re.compile(r"\$\(([^()]+)\)")


def references(value: str | None) -> list[str]:
    """Names of the variables that Kubernetes fills in where a value has $(NAME)."""
    return _REFERENCE.findall((value or "").replace("$$", ""))


def _references(item: Any) -> list[str]:
    return [name for name in references(item.value) if name in SET_BY_THE_AGENT]


NO_REFERENCE_TO_THE_AGENT = Rule(
    cel=f"!has(self.value) || !{_SET_BY_THE_AGENT}.exists(n, {_REFERS})",
    message="this variable is set inside the pod, by the agent, so that Kubernetes would leave the reference as it stands; "
    "write the value (nodes, gpusPerNode and pod.ports say what it is), or refer to it in spec.custom.command or args",
    holds=lambda item: not _references(item),
    name_cel=f"self.name + ' refers to $(' + {_SET_BY_THE_AGENT}.filter(n, {_REFERS})[0] + ')'",
    name=lambda item: f"{item.name} refers to $({_references(item)[0]})",
    only_new=True,
)

NO_RESERVED_KEYS = Rule(
    cel="!self.exists(k, " + " || ".join(f"k.startsWith('{prefix}')" for prefix in RESERVED_KEY_PREFIXES) + ")",
    message="labels and annotations of Oarlock and of gang schedulers are set by Oarlock; remove it here and use "
    "spec.scheduling (gang, queue, topology)",
    holds=lambda keys: not any(key.startswith(RESERVED_KEY_PREFIXES) for key in keys),
)

Env = Annotated[
    tuple[Annotated[EnvVar, NO_RESERVED_ENV, VALUE_OR_SOURCE, NO_REFERENCE_TO_THE_AGENT], ...],
    Field(max_length=128),
    ListMap("name"),
]
