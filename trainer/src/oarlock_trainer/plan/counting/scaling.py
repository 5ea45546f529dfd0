"""How a count grows with the tokens of image and text, from a few runs with few tokens, and exactly.

Products with weights, and what is kept, grow with the tokens: c + i N + t T. Attention grows with pairs of them:
ii N^2 + it N T + tt T^2. Three runs give three whole coefficients; each further run has to agree with them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Coefficients = tuple[int, int, int]
Tokens = tuple[int, int]
"""Of the image and of the text."""


def by_token(tokens: Tokens) -> Coefficients:
    """What c, i and t are multiplied by."""
    image, text = tokens
    return 1, image, text


def by_pair(tokens: Tokens) -> Coefficients:
    """What ii, it and tt are multiplied by."""
    image, text = tokens
    return image**2, image * text, text**2


def at(coefficients: Coefficients, terms: Coefficients) -> int:
    """The count where the terms are `by_token` or `by_pair` of the tokens."""
    return sum(one * term for one, term in zip(coefficients, terms, strict=True))


def fitted(counts: Mapping[Tokens, int], terms: Callable[[Tokens], Coefficients]) -> Coefficients:
    """The coefficients with which `terms` give each of `counts`, of which there are at least three.

    Raises ValueError where there are none: then it grows otherwise, or a size is padded to a multiple of something.
    """
    first = list(counts)[:3]
    solved = _solved([list(map(Fraction, terms(one))) for one in first], [Fraction(counts[one]) for one in first])
    found = (int(solved[0]), int(solved[1]), int(solved[2]))
    for tokens, count in counts.items():
        if at(found, terms(tokens)) != count:
            raise ValueError(
                f"{count} at {tokens} tokens of image and text, where {found} give {at(found, terms(tokens))}"
            )
    return found


def _solved(rows: list[list[Fraction]], values: list[Fraction]) -> list[Fraction]:
    """Gauss and Jordan's elimination."""
    table = [[*row, value] for row, value in zip(rows, values, strict=True)]
    for place in range(len(table)):
        pivot = next((number for number in range(place, len(table)) if table[number][place]), None)
        if pivot is None:
            raise ValueError("these numbers of tokens do not tell the coefficients apart")
        table[place], table[pivot] = table[pivot], table[place]
        table[place] = [one / table[place][place] for one in table[place]]
        for number, row in enumerate(table):
            if number != place:
                table[number] = [one - row[place] * own for one, own in zip(row, table[place], strict=True)]
    return [row[-1] for row in table]
