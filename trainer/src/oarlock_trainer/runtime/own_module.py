"""How a process of ours starts another one: from the same installation, or from the same bundle."""

from __future__ import annotations

import sys

MODULE = "--module"
"""What the bundle's command line begins with to run another module than the agent (start.py)."""


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules with this process's Python."""
    bundle = getattr(__spec__.loader, "archive", None)  # what zipimport's loader has
    if bundle:
        return [sys.executable, "-I", "-S", bundle, MODULE, module, *arguments]
    return [sys.executable, "-m", module, *arguments]
