"""Links in a process of their own, to be killed and frozen: `link_process.py PORT HEARTBEAT SILENCE NODES RANK...`.

Prints one JSON line with rank 0's port, then one for each piece of news: [own rank, type, rank, code, why].
A line on standard input, `RANK CODE`, has that rank leave. Ends with its standard input.
"""

from __future__ import annotations

import json
import select
import sys
import time

from gangs import Gang

from oarlock_trainer.agent.link.protocol import PeerLost


def main() -> None:
    port, heartbeat, silence, nodes, *ranks = sys.argv[1:]
    gang = Gang(int(nodes), heartbeat=float(heartbeat), silence=float(silence), port=int(port))
    for rank in map(int, ranks):
        link = gang.join(rank, clock=time.monotonic)
        gang.port = link.port
    say(gang.port)
    gang.stand(*(int(rank) for rank in ranks if rank != "0"))
    say("stands")
    descriptors = {link.descriptor: rank for rank, link in gang.links.items()}
    while True:
        readable, _, _ = select.select([sys.stdin, *descriptors], [], [])
        for descriptor, rank in descriptors.items():
            if descriptor in readable:
                for news in gang.links[rank].news():
                    lost = isinstance(news, PeerLost)
                    say([rank, type(news).__name__, news.rank, news.code, news.why if lost else ""])
        if sys.stdin in readable:
            if not (line := sys.stdin.readline()):
                return
            leaving, code = map(int, line.split())
            gang.links[leaving].leave(code, "asked to")
            say("left")


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


main()
