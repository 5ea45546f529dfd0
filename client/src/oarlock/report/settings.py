"""The job's settings as rows of path and value.

What looks secret is struck out: a report is passed on more freely than a job is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from oarlock.report.markup import Html, cut, element

MOST_ROWS = 400
_SECRET = re.compile(
    r"(token|password|passwd|passphrase|secret|credentials?|(api|access|private)[_-]?key|(^|_)key)$", re.IGNORECASE
)
_SAID = re.compile(r"((?:token|password|secret|api[_-]?key)\s*[=:]\s*)\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s/?#]+)([^\s?#]*)\S*")
STRUCK_OUT = "(struck out)"
Row = tuple[str, str]


def settings(spec: Mapping[str, object] | None) -> Html:
    """The section. `spec` is the TrainingJob's; None where the object could not be had."""
    heading = element("h2", "Settings", id="settings")
    if spec is None:
        words = element("p", "The job's object is not at hand, and its output does not keep them.", class_="dim")
        return element("section", heading, words, aria_labelledby="settings")
    found = list(rows(spec))
    body = [
        element("tr", element("th", element("code", name), scope="row"), element("td", cut(value, 400)))
        for name, value in found[:MOST_ROWS]
    ]
    more = (
        [element("p", f"{len(found) - MOST_ROWS:,} more are left out.", class_="dim")] if len(found) > MOST_ROWS else []
    )
    table = element("table", element("tbody", *body))
    folded = element(
        "details",
        element("summary", f"{len(found):,} fields of the job"),
        element("div", table, class_="wide", tabindex="0"),
    )
    return element("section", heading, folded, *more, aria_labelledby="settings")


def rows(value: object, path: str = "") -> Iterator[Row]:
    """Each value under its path, such as training.optimizer.learningRate.

    Variables of an environment stand under their names.
    """
    if isinstance(value, Mapping):
        named = value.get("name")
        if isinstance(named, str) and isinstance(value.get("value"), str):  # an environment's variable
            yield f"{path}.{named}", _shown(path, named, str(value["value"]))
            return
        for key, inner in value.items():
            yield from rows(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, list, tuple)) for one in value):
        for place, inner in enumerate(value):
            yield from rows(inner, f"{path}[{place}]")
    else:
        values = value if isinstance(value, (list, tuple)) else (value,)
        yield path, ", ".join(_shown(path, path.rpartition(".")[2], _words(one)) for one in values)


def _words(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _shown(path: str, name: str, value: str) -> str:
    """The value, without what looks secret: by its name, within a command, or within an address. A webhook's path is one."""
    if _SECRET.search(name):
        return STRUCK_OUT
    path_kept = "" if "webhook" in path.lower() else r"\3"
    return _ADDRESS.sub(rf"\1\2{path_kept}", _SAID.sub(rf"\1{STRUCK_OUT}", value))
