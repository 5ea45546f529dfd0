"""Sections of the spec that pods read, as plain classes made from the models.

The agent starts without pydantic: pods wait for it, and images of a job's own have none. So it can't read the sections
with the models, and what it reads them with is not written a second time by hand.

`python -m oarlock_api.sections` writes contract/sections.py; with --check it only compares.
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from oarlock_api.elastic import Elastic
from oarlock_api.generated import write_or_check
from oarlock_api.group import Group
from oarlock_api.pod import Ports
from oarlock_api.recovery import MemoryState, Preflight, Recovery
from oarlock_api.secret_refs import SecretKeyRef
from oarlock_api.spec import Custom
from oarlock_api.webhooks import Webhook

PATH = Path(__file__).parent / "contract" / "sections.py"

_SECTIONS: tuple[type[Group], ...] = (SecretKeyRef, Custom, Ports, Preflight, MemoryState, Recovery, Elastic, Webhook)
_HEADER = '''\
# Made from the models in api/src/oarlock_api by `python -m oarlock_api.sections`: change those, not this file.
"""Sections of the spec that pods read. What each field means, the models say."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType
'''


def render() -> str:
    """Write the module."""
    return _HEADER + "".join(f"\n\n{_class(section)}" for section in _SECTIONS)


def _class(section: type[Group]) -> str:
    fields = [
        f"    {name}: {_type(field.annotation)}{'' if field.is_required() else f' = {_value(field.default)}'}\n"
        for name, field in section.model_fields.items()
        if section.for_pods is None or name in section.for_pods
    ]
    head = (
        f'@dataclass(frozen=True, slots=True, kw_only=True)\nclass {section.__name__}:\n    """{section.__doc__}"""\n'
    )
    return f"{head}\n{''.join(fields)}"


def _type(hint: Any) -> str:
    outer, inner = get_origin(hint), get_args(hint)
    if outer is Annotated:
        return _type(inner[0])
    if outer in (Union, UnionType):
        return " | ".join(_type(one) for one in inner)
    if outer is tuple:
        return f"tuple[{_type(inner[0])}, ...]"
    return "None" if hint is NoneType else str(hint.__name__)


def _value(default: Any) -> str:
    if isinstance(default, Group):
        return f"{type(default).__name__}()"
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    return json.dumps(default) if isinstance(default, str) else str(default)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the committed file."""
    return write_or_check(module="oarlock_api.sections", path=PATH, content=render(), arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
