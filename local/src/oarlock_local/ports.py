"""TCP ports for servers that take one from their command line."""

import socket


def free_port(address: str) -> int:
    """A port that nobody has on an address of this machine, for a server that is started at once."""
    with socket.create_server((address, 0)) as listener:
        return int(listener.getsockname()[1])
