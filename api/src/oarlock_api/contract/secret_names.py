"""Which names say that what they name is secret: of variables, of options, and of fields of JSON. Pure.

A name is read as its words: HF_TOKEN, --hf-token and hfToken have the same two. One list holds for all; they differ in
where such a word may stand, for fields such as secretName and max_token_length are many, and no secrets.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS = frozenset({"auth", "authorization", "key", "pass", "passwords", "tokens"})
_ENDINGS = (
    *("token", "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials"),
    *("apikey", "accesskey", "accountkey", "privatekey"),
)
"""Of a word: people write hftoken and accesskey, too."""
_KEYS = frozenset({"access", "account", "api", "private", "secret"})
"""Kinds of keys that are secret; a topologyKey is none."""
_OF_SHELLS = "pwd"
"""Of a database it is its password; alone it is where a shell stands."""
_AFTER_A_SMALL_LETTER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[^a-z0-9]+")


def variable_is_secret(name: str, value: Any = None) -> bool:
    """Of an environment: any of its words says so, as in SECRET_KEY_BASE. A number of tokens is none."""
    words = _words(name)
    return any(_says_so(word, value) for word in words) or _OF_SHELLS in words[1:]


def option_is_secret(name: str, value: Any = None) -> bool:
    """Of a command, its dashes included: its last word says so, or an earlier one, as in HF_TOKEN_OF_CI.

    Where an earlier word is a token, what has a number is none: token_dim=768.
    """
    words = _words(name)
    if _says_so(words[-1], value) or _OF_SHELLS in words[1:]:
        return True
    return any(_ends(word) and not (word.endswith("token") and _is_number(value)) for word in words)


def field_is_secret(name: str, value: Any = None) -> bool:
    """Of JSON: its last word says so. Of keys only some kinds are, and those with an underscore, as people write them."""
    words = _words(name)
    if words[-1] == "key":
        return len(words) > 1 and (words[-2] in _KEYS or name.lower().endswith("_key"))
    return _says_so(words[-1], value)


def names_a_webhook(name: str) -> bool:
    """Whether the path of an address with this name is a secret."""
    return "webhook" in name.lower()


def _words(name: str) -> list[str]:
    """At least one, which may be empty."""
    return _BETWEEN.split(_AFTER_A_SMALL_LETTER.sub("_", name).lower().lstrip("-"))


def _says_so(word: str, value: Any) -> bool:
    if word == "tokens" and _is_number(value):
        return False
    return word in _WORDS or _ends(word)


def _is_number(value: Any) -> bool:
    return str(value).strip().isdecimal()


def _ends(word: str) -> bool:
    return word.endswith(_ENDINGS)
