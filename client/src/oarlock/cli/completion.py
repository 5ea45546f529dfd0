"""`kubectl_complete-oarlock`, which kubectl runs for `kubectl oarlock <TAB>`: words in, one suggestion a line out."""

import os
import shlex
import sys


def kubectl() -> None:
    """Print what may follow; the last line tells kubectl's completion not to offer files."""
    words = ["oarlock", *sys.argv[1:]]
    os.environ["_OARLOCK_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = " ".join(map(shlex.quote, words))
    os.environ["COMP_CWORD"] = str(len(words) - 1)
    from oarlock.cli.main import app  # noqa: PLC0415 - typer reads the environment

    try:
        app(prog_name="oarlock")
    except SystemExit:
        sys.stdout.write("\n:4\n")
        sys.stdout.flush()
