"""Where the bundle begins.

    python3 -I -S agent.pyz [OPTION ...]                       the agent, with its command line's options
    python3 -I -S agent.pyz --module MODULE [ARGUMENT ...]     one of our modules, as `python -m` would run it

The second form is how the agent starts its own helpers: an image has no such modules to run.
"""

from __future__ import annotations

import runpy
import sys

from oarlock_trainer.bundle import older_python
from oarlock_trainer.runtime.own_module import MODULE


def main() -> None:
    """Run what the command line asks for, and end the process with its code."""
    older_python.complete()
    arguments = sys.argv[1:]
    if arguments[:1] == [MODULE]:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    from oarlock_trainer import cli  # noqa: PLC0415 - not before the standard library is complete

    sys.exit(cli.main(["agent", *arguments]))
