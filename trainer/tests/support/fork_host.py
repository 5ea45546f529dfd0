"""A process that has imported what ranks have, and forks programs of tests: 4 s of imports are paid once, not by each.

    python fork_host.py

Reads orders as lines of JSON: {"program": a file, or else "code"; "arguments", "environment"; "input", "stdout", "stderr":
files}. Answers each with a line: the code that the program ended with. A program finds the modules and the environment of a
rank at its start (torch without its compiler).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from oarlock_trainer.ranks import preload


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload.import_everything(encoders=False)
    for line in sys.stdin:
        order = json.loads(line)
        gc.freeze()
        if (pid := os.fork()) == 0:
            answers.close()
            _become(order)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        answers.flush()


def _become(order: dict[str, Any]) -> NoReturn:
    """Run the program as an interpreter would that was started for it."""
    code = 1
    try:
        for descriptor, name in ((0, "input"), (1, "stdout"), (2, "stderr")):
            opened = os.open(order[name], os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_APPEND)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the old one has read ahead
        os.environ.clear()
        os.environ.update(order["environment"])
        preload.settle_environment()
        sys.argv = [order["program"] or "-c", *order["arguments"]]
        text = order["code"]
        if order["program"]:
            sys.path.insert(0, str(Path(order["program"]).parent))
            text = Path(order["program"]).read_text(encoding="utf-8")
        exec(compile(text, sys.argv[0], "exec"), {"__name__": "__main__"})  # noqa: S102
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if code and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
