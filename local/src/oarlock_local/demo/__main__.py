"""`make demo`. Exit status 0 only if all of it held; tidies up after itself, also on Ctrl-C.

With --stay it is `make demo-page`: it trains on until Ctrl-C, and what is to break is up to whoever watches.
"""

# ruff: noqa: T201 - a demo prints

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

from oarlock_local.demo.job import Disappointed
from oarlock_local.demo.kept import keep
from oarlock_local.demo.story import tell
from oarlock_local.errors import InUseError, LocalError

OTHER_WAY = "The other way: any cluster, with images of your own: docs/install.md, then kubectl apply your job."


def main() -> int:
    """Run the demo from a checkout of the repository; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    root = Path(__file__).parents[4]
    if not (root / "examples/trainingjob.yaml").is_file():
        print("demo: run it from a checkout of the repository: make demo", file=sys.stderr)
        return 2
    try:
        (keep if sys.argv[1:] == ["--stay"] else tell)(root)
    except InUseError:
        print(
            "\ndemo: another demo runs on this machine: wait for its end, or end it by .venv/bin/oarlock-local down demo",
            file=sys.stderr,
        )
        return 1
    except LocalError as error:
        print(f"\ndemo: {error}\n{OTHER_WAY}", file=sys.stderr)
        return 1
    except Disappointed as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything is cleared away", file=sys.stderr)
        return 130
    return 0


def _leave(number: int, _frame: object) -> NoReturn:
    # An exception, unlike the default action, lets the cluster be cleared away.
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
