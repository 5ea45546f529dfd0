"""docs/reference/trainingjob.md, made from the models: one table per group of fields.

`python -m oarlock_api.reference` writes the page; with --check it only compares. The page reads the structural schema
of the CRD, so it says exactly what the API server enforces.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.names import API_VERSION
from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_api.primitives import EVERY_STEPS_PATTERN
from oarlock_api.rules import VALIDATIONS
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import TrainingJobStatus
from oarlock_api.structural import Schema, structural_schema
from oarlock_api.trainingjob import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = REPOSITORY / "docs" / "reference" / "trainingjob.md"

_HEADER = f"""\
<!-- Made from the models in api/src/oarlock_api by `python -m oarlock_api.reference`: change those, not this page. -->

# TrainingJob reference

`{API_VERSION}`, kind `TrainingJob`, short `tj`. {TrainingJob.__doc__} `kubectl explain tj.spec` shows the same.

A field without default may be left out unless it is *required*; its description says what that means. Where a field does
what an option of SimpleTuner, accelerate or DeepSpeed does, the description ends with that option's name.
"""

_LOCATION = """\
## Location

A place for files, wherever a field's type is *Location*: exactly one of `path` and `s3`.
"""


def render() -> str:
    """Write the page as Markdown."""
    spec = structural_schema(TrainingJobSpec, defaults=True)
    status = structural_schema(TrainingJobStatus, defaults=False)
    location = spec["properties"]["training"]["properties"]["initFrom"]
    sections = [_HEADER]
    for path, schema in _groups(spec, "spec"):
        sections.append(_section(path, schema))
    sections.append(_LOCATION)
    sections.append(_table(location))
    sections.append("### Location.s3\n\n" + _table(location["properties"]["s3"]))
    for path, schema in _groups(status, "status"):
        sections.append(_section(path, schema))
    sections.append("## Rules over the whole job\n")
    sections.append(_rules([rule.as_schema() for rule in TrainingJob.admission]))
    return "\n".join(sections)


def _groups(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every group of fields with its path, a group before the groups in it."""
    yield path, schema
    for name, child in schema["properties"].items():
        element = child.get("items", child)
        if element.get("properties") and not _is_location(element):
            yield from _groups(element, f"{path}.{name}{'[]' if element is not child else ''}")


def _is_location(schema: Schema) -> bool:
    return set(schema.get("properties", {})) in ({"path", "s3"}, {"connection", "bucket", "prefix"})


def _section(path: str, schema: Schema) -> str:
    level = "##" if "." not in path else "###"
    rules = schema.get(VALIDATIONS, [])
    return "\n".join([f"{level} {path}\n", _table(schema, path.replace("[]", "")), *([_rules(rules)] if rules else [])])


def _table(schema: Schema, path: str = "") -> str:
    required = schema.get("required", ())
    lines = ["| field | type | default | description |", "| --- | --- | --- | --- |"]
    for name, child in schema["properties"].items():
        default = "*required*" if name in required else _default(child)
        lines.append(
            f"| `{name}` | {_type(child, f'{path}.{name}')} | {default} | {_escaped(child.get('description', ''))} |"
        )
    return "\n".join(lines) + "\n"


def _rules(rules: list[dict[str, str]]) -> str:
    return "Refused with these words:\n\n" + "\n".join(f"- {rule['message']}" for rule in rules) + "\n"


def _default(schema: Schema) -> str:
    default: Any = schema.get("default")
    return "" if default is None or "properties" in schema else f"`{json.dumps(default)}`".replace('"', "")


def _type(schema: Schema, path: str) -> str:
    """Type of a field in a few words, with its bounds; a group links to its own table."""
    kind = str(schema.get("type", "quantity"))
    if schema.get("pattern") == EVERY_STEPS_PATTERN:
        kind = "`Auto` \\| whole number"
    elif _is_location(schema):
        kind = "[Location](#location)" if "path" in schema["properties"] else "[S3 location](#locations3)"
    elif "enum" in schema:
        kind = " \\| ".join(f"`{word}`" for word in schema["enum"])
    elif kind == "array":
        kind = f"list of {_type(schema['items'], path)}, at most {schema['maxItems']}"
    elif schema.get("properties"):
        kind = f"[group](#{path.replace('.', '').lower()})"
    elif "additionalProperties" in schema:
        kind = f"map of {schema['additionalProperties']['type']}s"
    elif schema.get("format") == "date-time":
        kind = "time"
    return kind + _range(schema)


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = "> " if schema.get("exclusiveMinimum") else ">= "
    below = "< " if schema.get("exclusiveMaximum") else "<= "
    bounds = [f"{above}{low:,}"] if low is not None else []
    bounds += [f"{below}{high:,}"] if high is not None else []
    return f", {', '.join(bounds)}" if bounds else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main(arguments: list[str] | None = None) -> int:
    """Write or check the committed page."""
    return write_or_check(module="oarlock_api.reference", path=PATH, content=render(), arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
