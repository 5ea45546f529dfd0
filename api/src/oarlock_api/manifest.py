"""Reading manifests by kubectl's rules.

kubectl takes 1e-05 for a number, and prints a learning rate like that. PyYAML keeps to YAML 1.1, where a number with an
exponent needs a dot and a signed exponent, and so reads it as a string; it also makes a number of 12:30:00 and a date of
2026-01-01, which are text to kubectl. The words for true and false (yes, on, ...) are the same for both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from typing import IO

_INTEGER = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_REPLACED = {_INTEGER, _FLOAT, _TIMESTAMP}


class ManifestLoader(yaml.SafeLoader):
    """A safe loader with kubectl's numbers, which takes a key that stands twice for the mistake that it is."""

    # PyYAML keeps resolvers by first character; those of numbers and dates are taken out and put in anew below.
    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Refuse duplicate keys, of which PyYAML would silently take the last."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        "in this mapping", node.start_mark, f"the key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _integer(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    digits = node.value.replace("_", "").lower()
    # A leading zero alone means octal to kubectl, as in file modes; Python wants 0o for that.
    octal = re.fullmatch(r"[-+]?0[0-7]+", digits)
    return int(digits, 8 if octal else 0)


def _float(_: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(node.value)


ManifestLoader.add_implicit_resolver(
    _INTEGER,
    re.compile(r"^[-+]?(0[0-7_]*|[1-9][0-9_]*|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+)$"),
    list("-+0123456789"),
)
ManifestLoader.add_implicit_resolver(
    _FLOAT, re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)
ManifestLoader.add_constructor(_INTEGER, _integer)
ManifestLoader.add_constructor(_FLOAT, _float)


def load(text: str | IO[str]) -> Any:
    """Read one document.

    Raises yaml.YAMLError where it is no YAML or a key stands twice.
    """
    return yaml.load(text, Loader=ManifestLoader)  # noqa: S506 - a SafeLoader


def load_all(text: str | IO[str]) -> list[Any]:
    """Read every document of a stream but the empty ones."""
    return [document for document in yaml.load_all(text, Loader=ManifestLoader) if document is not None]
