"""docs/cli.md and docs/cli-v1.schema.json, made from the verbs, the exit codes and the rows.

`python -m oarlock.cli.page` writes them; with --check it only compares.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING
from dataclasses import fields as fields_of
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from oarlock.cli.main import app
from oarlock.cli.output import FORMATS, VERSION
from oarlock.exit_codes import ExitCode
from oarlock.logs import LogLine
from oarlock.rows import EventRow, FaultRow, JobRow, NodeRow
from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_api.naming import camel_case

PAGE = REPOSITORY / "docs" / "cli.md"
SCHEMA = REPOSITORY / "docs" / "cli-v1.schema.json"
LISTS = {"JobList": JobRow, "EventList": EventRow, "FaultList": FaultRow, "NodeList": NodeRow}
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_HEAD = f"""\
<!-- Made from the verbs in client/src/oarlock/cli by `python -m oarlock.cli.page`: change those, not this page. -->

# The command line

`oarlock`, also as `kubectl oarlock`: `pip install ./api ./client` in a checkout; it is on no index yet, [nor in
krew's](decisions/0053-no-krew-manifest.md). It needs neither torch nor the operator's rights: every request is the caller's
own, by the kubeconfig that kubectl would take, or in a pod by its account. [From Python](sdk.md) the same
verbs are methods; `oarlock web` shows jobs [in a browser](page.md).

`oarlock --install-completion` sets up completion for bash, zsh and fish; for `kubectl oarlock` kubectl finds
`kubectl_complete-oarlock` on PATH by itself. Options `-n`, `--context` and `--kubeconfig` belong to every verb that asks a
cluster.

## First steps
```
oarlock submit -f job.yaml --follow     # start it, and read what its ranks print until it ends
oarlock ls                              # what there is; oarlock top: what runs, live
oarlock why flux                        # what holds it up, or made it begin anew, and what to do
oarlock logs flux -f                    # all pods, through all attempts
oarlock save flux                       # a checkpoint now; oarlock stop flux: save, end, delete
oarlock wait flux && echo trained       # for scripts: see the exit codes
```

## Output
`-o` takes {", ".join(f"`{name}`" for name in FORMATS)}. Lists as JSON and YAML have a `version` (now {VERSION}), a `kind`
and `items`, by [this schema](cli-v1.schema.json); `jsonl` has one item a line. Fields may be added; where one goes or changes
its meaning, the version rises. What is not known is null. `get -o json` is the object itself, as kubectl has it.

An error is one line on standard error: what was wrong, where, and what to do.

## Exit codes
| code | means |
| --- | --- |
"""


def page() -> str:
    """The page, as Markdown."""
    codes = "".join(f"| {int(code)} | {code.meaning} |\n" for code in ExitCode)
    command: Any = get_command(app)
    verbs = [_verb(name, one) for name, one in sorted(command.commands.items())]
    return _HEAD + codes + "\n## Verbs\n" + "\n".join(verbs)


def schema() -> dict[str, Any]:
    """The JSON schema of lists, and of the lines of `logs -o jsonl`."""
    rows = {row.__name__: _row(row) for row in (*LISTS.values(), LogLine)}
    lists = [
        {
            "type": "object",
            "required": ["version", "kind", "items"],
            "properties": {
                "version": {"const": VERSION},
                "kind": {"const": kind},
                "items": {"type": "array", "items": {"$ref": f"#/$defs/{row.__name__}"}},
            },
        }
        for kind, row in LISTS.items()
    ]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": lists, "$defs": rows}


def _verb(name: str, command: Any) -> str:
    arguments = [one.metavar or one.name.upper() for one in command.params if one.param_type_name == "argument"]
    lines = [f"### {name}", "", command.help or "", "", f"`{' '.join(['oarlock', name, *arguments])}`", ""]
    options = [one for one in command.params if one.param_type_name == "option" and one.name not in _EVERYWHERE]
    if options:
        lines += ["| option | |", "| --- | --- |"]
        lines += [f"| `{', '.join(one.opts)}` | {_help(one)} |" for one in options]
        lines.append("")
    return "\n".join(lines)


_EVERYWHERE = {"namespace", "context", "kubeconfig", "help"}


def _help(option: Any) -> str:
    default = f" Default: `{option.default}`." if option.default not in (None, False) else ""
    return (option.help or "") + default


def _row(row: Any) -> dict[str, Any]:
    hints = get_type_hints(row)
    required = [camel_case(each.name) for each in fields_of(row) if each.default is MISSING]
    return {
        "description": row.__doc__,
        "type": "object",
        "required": required,
        "properties": {camel_case(each.name): _type(hints[each.name]) for each in fields_of(row)},
    }


def _type(hint: Any) -> dict[str, Any]:
    names = [_TYPES[one] for one in get_args(hint) or (hint,)]
    return {"type": names[0] if len(names) == 1 else names}


def main(arguments: list[str] | None = None) -> int:
    """Write or check both."""
    made = {PAGE: page(), SCHEMA: json.dumps(schema(), indent=2) + "\n"}
    codes = [
        write_or_check(module="oarlock.cli.page", path=path, content=content, arguments=arguments)
        for path, content in made.items()
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
