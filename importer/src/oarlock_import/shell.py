"""What a shell does to the text of config.env before it sets a variable: lines that go on, remarks, and sums."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SUM = re.compile(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)")
"""$(( ... )), with one level of brackets in it."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_MOST = 200
"""Characters of a sum: it is no program."""


def logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Lines as a shell counts them, with the number that each begins at, without remarks.

    One goes on behind a backslash at its end, and within quotes; what is never closed goes on to the end of the file.
    """
    line: list[str] = []
    number = start = 1
    quote = ""
    at = 0
    content = content.replace("\r\n", "\n")
    while at < len(content):
        char = content[at]
        if char == "\\" and quote != "'":
            pair = content[at : at + 2]
            if pair.endswith("\n"):
                number += 1
            else:
                line.append(pair)
            at += 2
            continue
        if char == "#" and not quote and (not line or line[-1].isspace()):
            end = content.find("\n", at)
            at = len(content) if end < 0 else end
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        at += 1
        number += char == "\n"
        if char == "\n" and not quote:
            yield start, "".join(line)
            line, start = [], number
        else:
            line.append(char)
    yield start, "".join(line)


def computed(text: str, variables: Mapping[str, str], used: set[str]) -> str:
    """Text with the results of its sums, $((A / 10)); one that can't be told stays. Notes in `used` the variables in it."""

    def result(match: re.Match[str]) -> str:
        names = set(_NAME.findall(match[1]))
        if not names <= variables.keys():
            return match[0]
        used.update(names)
        whole = _NAME.sub(lambda name: f"({variables[name[0]]})", match[1]).strip()
        if len(whole) > _MOST:
            return match[0]
        try:
            return str(_value(ast.parse(whole, mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError):
            return match[0]

    return _SUM.sub(result, text)


def _value(node: ast.expr) -> int:
    """A sum of whole numbers; as in a shell, what is divided is cut towards 0.

    Raises ValueError for all else.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](left, right)
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        if isinstance(node.op, ast.Div):
            return quotient
        if isinstance(node.op, ast.Mod):
            return left - right * quotient
    raise ValueError(ast.dump(node))
