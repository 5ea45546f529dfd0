"""Settings without what looks secret: they are passed on more freely than a job is read. Pure.

Settings that are secret stand in Secrets, and a job only names those. This is for what people write into it all the same:
a variable of an environment, an argument of a command, an address with a password, a webhook's path.
"""

from __future__ import annotations

import re
from typing import Any

STRUCK_OUT = "(struck out)"
_WORDS = r"(token|password|passwd|passphrase|secret|credentials?|(api|access|private)[_-]?key"
_NAME = re.compile(rf"{_WORDS}|(^|_)key)$", re.IGNORECASE)
_FLAG = re.compile(rf"--?[\w.-]*{_WORDS})$", re.IGNORECASE)
"""Of a command line, where the value is the next argument."""
_SAID = re.compile(r"((?:token|password|secret|api[_-]?key)\s*[=:]\s*)\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^\s/@]*@)?([^\s/?#]+)([^\s?#]*)\S*", re.IGNORECASE)


def struck_out(value: Any, path: str = "") -> Any:
    """The same JSON value without what looks secret by its name, within a command, or within an address.

    `path` is where it stands, such as spec.pod.env: below a webhook, the path of an address is a secret, too.
    """
    if isinstance(value, dict):
        named = value.get("name")
        variable = isinstance(named, str) and isinstance(value.get("value"), str)  # an environment's
        return {
            key: _shown(path, str(named), inner)
            if variable and key == "value"
            else struck_out(inner, f"{path}.{key}" if path else str(key))
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        before = [None, *value]
        return [
            STRUCK_OUT if _is_said_by(flag, one) else struck_out(one, path)
            for flag, one in zip(before, value, strict=False)
        ]
    return _shown(path, path.rpartition(".")[2], value)


def _is_said_by(flag: Any, argument: Any) -> bool:
    texts = isinstance(flag, str) and isinstance(argument, str)
    return texts and bool(_FLAG.fullmatch(flag)) and not argument.startswith("--")


def _shown(path: str, name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if _NAME.search(name):
        return STRUCK_OUT
    if not isinstance(value, str):
        return value
    path_kept = "" if "webhook" in path.lower() else r"\3"
    return _ADDRESS.sub(rf"\1\2{path_kept}", _SAID.sub(rf"\1{STRUCK_OUT}", value))
