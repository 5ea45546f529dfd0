"""A process that has imported what ranks have, and forks programs of tests: 5 s of imports are paid once, not by each.

    python fork_host.py SOCKET

SOCKET is the descriptor of a Unix socket that keeps messages apart. An order is JSON, with the descriptors that the program
gets: {"program": a file, or else its "code"; "arguments"; "environment"; "descriptors": names}. The first three descriptors
are its standard streams; each further one has a name, by which the program finds its number in its environment, and in the
place of the argument {name}. The host answers {"pid": ...} at once, and {"pid": ..., "code": ...} when it has ended: minus
the signal where one killed it. A program finds the modules and the environment of a rank at its start (torch without its
compiler), and dies with the host, which ends when the socket does.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.parent import die_with

_BYTES, _DESCRIPTORS = 1 << 20, 16


def main() -> None:
    """Serve until the socket ends."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    preload.import_everything(encoders=True)
    from oarlock_trainer.models.adapters import low_rank  # noqa: PLC0415 - brings torch, for which all must be settled

    low_rank.import_peft()
    ended, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    ready = selectors.DefaultSelector()
    ready.register(orders, selectors.EVENT_READ)
    ready.register(ended, selectors.EVENT_READ)
    running: set[int] = set()
    while True:
        for key, _ in ready.select():
            if key.fd == ended:
                os.read(ended, _BYTES)
                _tell_ends(orders, running)
                continue
            message, descriptors, *_ = socket.recv_fds(orders, _BYTES, _DESCRIPTORS)
            if not message:
                return
            host = os.getpid()
            gc.freeze()
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                ready.close()
                orders.close()
                os.close(ended)
                os.close(woken)
                _become(json.loads(message), descriptors, host)
            for descriptor in descriptors:
                os.close(descriptor)
            running.add(pid)
            orders.send(json.dumps({"pid": pid}).encode())


def _tell_ends(orders: socket.socket, running: set[int]) -> None:
    for pid in sorted(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            running.remove(pid)
            orders.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _become(order: dict[str, Any], descriptors: list[int], host: int) -> NoReturn:
    """Run the program as an interpreter would that was started for it."""
    code = 1
    try:
        die_with(host)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the old one may have read ahead
        named = {name: str(number) for name, number in zip(order["descriptors"], descriptors[3:], strict=True)}
        os.environ.clear()
        os.environ.update(order["environment"] | named)
        preload.settle_environment()
        in_place = {f"{{{name}}}": number for name, number in named.items()}
        sys.argv = [order["program"] or "-c", *(in_place.get(argument, argument) for argument in order["arguments"])]
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
