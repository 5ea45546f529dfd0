"""Settings without what looks secret: they are passed on more freely than a job is read. Pure.

Settings that are secret stand in Secrets, and a job only names those. This is for what people write into it all the same:
a variable of an environment, an argument of a command, a line of a shell, an address with a password, a webhook's path.
In doubt it goes. It takes time in proportion to the text, whatever that is.
"""

from __future__ import annotations

import re
from typing import Any

from oarlock_api.contract.secret_names import field_is_secret, names_a_webhook, option_is_secret, variable_is_secret

STRUCK_OUT = "(struck out)"
_NAME = re.compile(r"[\w.-]+")
_VALUE = r"""((?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'\\])+\S*|\S+)"""
_SCHEME = r"(?:(?:apikey|basic|bearer|bot|key|token)[ \t]+)?"
"""Of a header Authorization."""
_GIVEN = re.compile(rf"""\\?["']?[ \t]*[=:][ \t]*{_SCHEME}{_VALUE}""", re.IGNORECASE | re.DOTALL)
_GIVEN_NEXT = re.compile(rf"(?:\s|\\\n)+(?!-){_VALUE}", re.DOTALL)
"""Of an option."""
_BEARER = re.compile(r"(\bbearer[ \t]+)\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"://(\S+)")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)")
_OF_A_WEBHOOK = re.compile(r"webhook|(?:^|\.)hooks\.", re.IGNORECASE)


def struck_out(value: Any, path: str = "") -> Any:
    """The same JSON value without what looks secret by its name, within a command, or within an address.

    `path` is where it stands, such as spec.pod.env: below a webhook, the path of an address is a secret, too.
    """
    if isinstance(value, dict):
        named = value.get("name")
        variable = isinstance(named, str) and isinstance(value.get("value"), str)  # an environment's
        return {
            key: _variable(path, str(named), inner)
            if variable and key == "value"
            else struck_out(inner, f"{path}.{key}" if path else str(key))
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        before = [None, *value]
        return [_argument(path, flag, one) for flag, one in zip(before, value, strict=False)]
    if value is None or isinstance(value, bool):
        return value
    if field_is_secret(path.rpartition(".")[2], value):
        return STRUCK_OUT
    return _text(value, webhook=names_a_webhook(path)) if isinstance(value, str) else value


def _variable(path: str, name: str, value: str) -> str:
    if variable_is_secret(name, value):
        return STRUCK_OUT
    return _text(value, webhook=names_a_webhook(path) or names_a_webhook(name))


def _argument(path: str, before: Any, value: Any) -> Any:
    """`before`: the argument before, which may be the option whose value this one is."""
    if isinstance(before, str) and isinstance(value, str) and before.startswith("-") and not value.startswith("--"):
        if _NAME.fullmatch(before) and option_is_secret(before, value):
            return STRUCK_OUT
        if _NAME.fullmatch(before) and names_a_webhook(before):
            return _text(value, webhook=True)
    return struck_out(value, path)


def _text(text: str, *, webhook: bool) -> str:
    """`webhook`: addresses in it are known to be those of webhooks."""
    shown = _ADDRESS.sub(lambda found: _address(found[1], webhook=webhook), text)
    return _BEARER.sub(rf"\1{STRUCK_OUT}", _without_what_is_named(shown))


def _address(told: str, *, webhook: bool) -> str:
    """Without what comes before the last @, if that may be a password, and without the query."""
    place = _PARTS.match(told)
    if place and ("@" in place[1] or ":" in place[1]):  # else an @ belongs to the path, as in git+https://host/x@main
        told = told.rpartition("@")[2]
        place = _PARTS.match(told)
    host, path = place.groups() if place else ("", "")
    return f"://{host}" if webhook or _OF_A_WEBHOOK.search(told) else f"://{host}{path}"


def _without_what_is_named(text: str) -> str:
    """Without the values in NAME=value, "name": "value" and --name value whose names say that they are secret."""
    kept, end = [], 0
    for name in _NAME.finditer(text):
        webhook = names_a_webhook(name[0])
        if name.start() < end or not (webhook or option_is_secret(name[0])):
            continue  # most are neither, and reading a value takes as long as it is
        given = _GIVEN.match(text, name.end())
        if given is None and name[0].startswith("-"):
            given = _GIVEN_NEXT.match(text, name.end())
        if given and (option_is_secret(name[0], given[1]) or (webhook and "://" in given[1])):
            kept += [text[end : given.start(1)], STRUCK_OUT]
            end = given.end()
    return "".join([*kept, text[end:]])
