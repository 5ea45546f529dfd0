"""Every family is whole, and nothing outside its folder knows which families there are."""

from __future__ import annotations

import ast
import json
import re
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oarlock_trainer
from oarlock_api.weights import (
    BESIDE,
    FLAVORS,
    REFERENCED,
    SEEING,
    VIDEO_FAMILIES,
    VIDEO_FPS,
    VIDEO_INTERVAL,
    ModelFamily,
)
from oarlock_trainer.data.buckets import alignment
from oarlock_trainer.models.families import FAMILIES, family_in
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(oarlock_trainer.__file__).parent
TABLES = {SOURCE / place for place in ("models/families.py", "models/family_codes.py", "plan/counting/descriptions.py")}
"""The last one describes the arguments of classes for counting, of families that are trained and of others."""
_SHORT = 3
NAMES = re.compile(
    "|".join(
        # A short one is no name where it is a part of a word.
        rf"(?<![a-z]){word}(?![a-z])" if len(word) <= _SHORT else re.escape(word)
        for word in sorted(
            {word.lower() for key, family in FAMILIES.items() for word in (key, key.name, family.name, family.slug)}
        )
    )
)


def folders() -> set[Path]:
    """Those of the families."""
    return {path.parent for path in (SOURCE / "models").glob("*/family.py")}


def said_by_code(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every name and string of a program, but for its comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    yield getattr(node, "lineno", 0), text


def test_every_family_of_the_api_says_all_and_computes_all() -> None:
    preload.settle_environment()
    from oarlock_trainer.models.family_codes import CODES  # noqa: PLC0415 - brings torch

    assert FAMILIES.keys() == CODES.keys() == set(ModelFamily)
    assert tuple(key for key, family in FAMILIES.items() if family.is_video) == VIDEO_FAMILIES
    known = {(family.grid.frames, family.fps) for family in FAMILIES.values()}
    assert known == {(1, 0), (VIDEO_INTERVAL, VIDEO_FPS)}  # the one of pictures, the other of VIDEO_FAMILIES
    assert len({family.slug for family in FAMILIES.values()}) == len(folders()) == len(FAMILIES)
    assert {key: tuple(family.flavors) for key, family in FAMILIES.items()} == FLAVORS
    takes = {
        key: tuple(flavor for flavor, facts in family.flavors.items() if facts.reference)
        for key, family in FAMILIES.items()
    }
    assert {key: flavors for key, flavors in takes.items() if flavors} == REFERENCED
    beside = [
        flavor
        for family in FAMILIES.values()
        for flavor, facts in family.flavors.items()
        if facts.reference and facts.reference.is_beside
    ]
    assert beside == list(BESIDE)
    seeing = [flavor for one in FAMILIES.values() for flavor, facts in one.flavors.items() if facts.sight]
    assert seeing == list(SEEING)
    for key, family in FAMILIES.items():
        assert ("reference" in signature(CODES[key].velocity).parameters) >= bool(takes[key]), family.name
        assert bool(CODES[key].seeing_encoder) == any(one.sight for one in family.flavors.values()), family.name


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.slug)
def test_every_bucket_can_be_cut_into_tokens(family: object) -> None:
    for edge in (64, 127, 128, 2048):
        step = alignment(edge, family.grid.bucket)  # type: ignore[attr-defined]
        assert step % family.grid.edge == 0  # type: ignore[attr-defined]


def test_no_code_outside_a_familys_folder_and_the_tables_names_a_family() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path not in TABLES and not folders() & set(path.parents)
        for line, text in said_by_code(path.read_text(encoding="utf-8"))
        if NAMES.search(text.lower())
    ]
    assert found == []


def test_a_family_is_seen_where_code_names_it_and_not_where_prose_does() -> None:
    program = '''"""FLUX.1 has 12 B parameters."""
from oarlock_trainer.models.flux import family
KIND = "Flux1"  # of FLUX.1
'''
    named = [line for line, text in said_by_code(program) if NAMES.search(text.lower())]
    assert sorted(named) == [2, 3]


def test_a_model_tells_its_family_and_one_of_no_family_is_refused(tiny_flux: Path, tmp_path: Path) -> None:
    assert family_in(tiny_flux) is FAMILIES[ModelFamily.FLUX1]
    config = tmp_path / "transformer/config.json"
    config.parent.mkdir()
    for content, why in (({"_class_name": "UNet2DModel"}, "is of the class UNet2DModel"), ({}, "names no class")):
        config.write_text(json.dumps(content))
        with pytest.raises(ConfigurationError, match=why):
            family_in(tmp_path)
    config.unlink()
    with pytest.raises(ConfigurationError, match=r"--model: .* is not there"):
        family_in(tmp_path, "--model")
