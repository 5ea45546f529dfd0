"""What SimpleTuner itself says of its options and models, read from a checkout of it: tables/simpletuner.json.

`python -m oarlock_import.checkout DIR` writes the file; nothing of SimpleTuner runs but the modules that list its options,
with stand-ins for what they import. It holds names and defaults alone, and the version that they are of.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from oarlock_import.simpletuner import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAMILIES = ("flux", "flux2", "z_image", "sd3", "qwen_image", "wan")
"""Those whose flavours are read: the ones that are here."""
_REGISTRY = "simpletuner.simpletuner_sdk.server.services.field_registry"
_REAL = (_REGISTRY, "simpletuner.helpers.models.registry", "simpletuner.helpers.models.field_registry")
_LISTED = ("DEFAULT_MODEL_FLAVOUR", "HUGGINGFACE_PATHS", "DEFAULT_LORA_TARGET")


class _Anything(str):
    """Stands for a value that only other modules know: an empty text, which lists one thing where it is called."""

    __slots__ = ()

    def __call__(self, *_: Any, **__: Any) -> list[str]:
        return [""]


class _StandIn(ModuleType):
    """A module of SimpleTuner that is not executed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives packages of SimpleTuner without running them, and stand-ins for its other modules."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for what is not to run; None for what is."""
        del path, target
        if not fullname.startswith("simpletuner") or fullname.startswith(_REAL):
            return None
        folder = self._root.joinpath(*fullname.split("."))
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty module."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs."""


def read(root: Path) -> dict[str, Any]:
    """Version, options (name -> default), variables and families of the checkout at `root`."""
    found = re.search(r'^__version__ = "([^"]+)"', (root / "simpletuner/__init__.py").read_text(), re.MULTILINE)
    return {
        "version": found[1] if found else "unknown",
        "options": dict(sorted(_options(root))),
        "variables": _variables(root / "simpletuner/helpers/configuration/env_file.py"),
        "families": {name: _family(root / "simpletuner/helpers/models", name) for name in FAMILIES},
    }


def _options(root: Path) -> Iterator[tuple[str, Any]]:
    """Every name that an option has, with its default; one that is no plain value is told as null."""
    finder = _Finder(root)
    sys.meta_path.insert(0, finder)
    try:
        fields = importlib.import_module(f"{_REGISTRY}.registry").FieldRegistry()._fields.values()
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "simpletuner"]:
            del sys.modules[name]
    for field in fields:
        default = field.default_value
        plain = default if isinstance(default, bool | int | float | str) and type(default) is not _Anything else None
        for name in (field.name, field.arg_name, *(field.aliases or ())):
            if isinstance(name, str) and name != "==SUPPRESS==":
                yield name.lstrip("-").replace("-", "_"), _short(plain)


def _short(default: Any) -> Any:
    """A default of several lines is a text for people, and of no use here."""
    return None if isinstance(default, str) and "\n" in default else default


def _variables(module: Path) -> list[str]:
    """Variables of config.env that stand for options: the keys of the module's one table."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return sorted(_literal(node.value, {}))
    return []


def _family(models: Path, name: str) -> dict[str, Any]:
    """The default flavour of a family, its flavours with their repositories, and the layers that LoRA has by default."""
    names = _attributes(models / "common.py") | _attributes(models / name / "model.py")
    flavour, paths, layers = (names[one] for one in _LISTED)
    return {"default": flavour, "flavours": paths, "layers": layers}


def _attributes(module: Path) -> dict[str, Any]:
    """Attributes of a module's classes that are written out in it; of one name the first."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(module.read_text())):
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            value = getattr(statement, "value", None)
            if isinstance(target, ast.Name) and value is not None:
                found.setdefault(target.id, _literal(value, found))
    return found


def _literal(node: ast.expr, names: dict[str, Any]) -> Any:
    """A value of texts, lists and dictionaries, and of names that stand above it; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.List):
        return [_literal(below, names) for below in node.elts]
    if isinstance(node, ast.Dict):
        return {
            _literal(key, names): _literal(value, names)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return None


def main(arguments: list[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_import.checkout", description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, metavar="DIR", help="SimpleTuner's repository")
    parser.add_argument("--output", type=Path, default=TABLE, help="the file (default: %(default)s)")
    given = parser.parse_args(arguments)
    given.output.write_text(json.dumps(read(given.checkout.resolve()), indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
