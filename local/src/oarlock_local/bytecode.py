"""Bytecode of shared sources. Pods must not write beside them; without it each pod compiles them anew, a second a start."""

import compileall
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def compile_sources(shares: Iterable[Path]) -> None:
    """Compile the Python sources below these folders that this Python imports from outside its environment.

    Those of editable installs: what is installed in the environment was compiled with it. What is compiled already costs a
    look at its date. Where a folder cannot be written to, pods compile.
    """
    for source in sources_in(shares, sys.path):
        compileall.compile_dir(source, quiet=2)  # processes for it would take longer than all the looks


def sources_in(shares: Iterable[Path], searched: Sequence[str]) -> list[Path]:
    """Of the folders where Python searches, those below these shares that are of no Python's installation, nor hold one.

    A checkout with its environment in it is searched where `python -m` is started there.
    """
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    shared = [share.resolve() for share in shares]
    found = [Path(folder).resolve() for folder in searched if folder]
    return [
        folder
        for folder in dict.fromkeys(found)
        if folder.is_dir()
        and _is_in(folder, shared)
        and not _is_in(folder, installed)
        and not any(_is_in(root, [folder]) for root in installed)
    ]


def _is_in(folder: Path, roots: Iterable[Path]) -> bool:
    return any(folder.is_relative_to(root) for root in roots)
