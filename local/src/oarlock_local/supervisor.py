"""The one process that a cluster hangs on: it starts everything, does faults on request, and ends everything.

With nodes it is process 1 of its own process namespace, and has its own network and mount namespace: when it dies,
even by SIGKILL, the kernel kills all other processes of the cluster and takes its mounts, links and routes away. A
control plane alone needs no root and so has no namespaces; its processes ask the kernel to die with their parent.
What the kernel does not take away, the keeper does.
It is single-threaded, as parent-death signals and reaping need.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

from oarlock_local import control, control_plane, network
from oarlock_local.api import ApiServer
from oarlock_local.errors import ClusterError, LocalError
from oarlock_local.faults import GPU_ACTIONS, NODE_ACTIONS
from oarlock_local.folders import ClusterFolder
from oarlock_local.lifetime import LINKED, Abandoned, Lifetime, Stop
from oarlock_local.node import Node
from oarlock_local.nvml import GpuFault
from oarlock_local.processes import start_logged
from oarlock_local.spec import ClusterSpec

# A component that dies sooner than this after its start would only die again.
_SHORTEST_LIFE_SECONDS = 5
_START_SECONDS = 120


def main() -> None:
    """Run a cluster until its end: arguments are its folder and the descriptor of its lifetime pipe."""
    spec = ClusterSpec.load(ClusterFolder(Path(sys.argv[1])))
    supervisor = Supervisor(spec, Lifetime(int(sys.argv[2])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    abandoned = False
    try:
        supervisor.start()
        _say("up")
        supervisor.serve()
    except Stop:
        pass
    except Abandoned:
        abandoned = True
    except LocalError as error:
        _say(f"error {error}")
    finally:
        supervisor.end()
        if abandoned:
            # Nobody is left who would do it.
            shutil.rmtree(spec.root)


class Supervisor:
    """The processes of one cluster."""

    def __init__(self, spec: ClusterSpec, lifetime: Lifetime) -> None:
        self.spec = spec
        self.lifetime = lifetime
        self.components: dict[str, subprocess.Popen[bytes]] = {}
        self.started: dict[str, float] = {}
        self.commands = {
            "etcd": control_plane.etcd(spec),
            "kube-apiserver": control_plane.api_server(spec),
            "kube-controller-manager": control_plane.controller_manager(spec),
            "kube-scheduler": control_plane.scheduler(spec),
        }
        if spec.nodes:
            self.commands["coredns"] = control_plane.dns(spec)
        self.nodes = {name: Node(spec, number) for number, name in enumerate(spec.node_names, 1)}

    def start(self) -> None:
        """Start everything; returns when the API server is ready and every node's kubelet has been started."""
        if self.nodes:
            network.make_bridge(self.spec.addresses)
            network.route_to_pods(self.spec.addresses, self.spec.nodes)
            _say("born")
            self.lifetime.wait_for(LINKED)
            network.plug_uplink()
            control_plane.write_dns_config(self.spec)
        self._start_component("etcd")
        self._start_component("kube-apiserver")
        for node in self.nodes.values():
            node.boot()
        for node in self.nodes.values():
            node.plug_in()
        with ApiServer(self.spec.folder.kubeconfig) as api:
            self.lifetime.wait_until(
                lambda: self._all_alive() and api.is_ready(), "the API server did not become ready", _START_SECONDS
            )
        for name in self.commands.keys() - self.components.keys():
            self._start_component(name)
        for node in self.nodes.values():
            node.start_kubelet()

    def serve(self) -> None:
        """Take requests until the end."""
        with selectors.DefaultSelector() as selector, control.listen(self.spec.folder.control_socket) as server:
            woken = _wake_on_signals()
            selector.register(server, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            if self.lifetime.descriptor is not None:
                selector.register(self.lifetime.descriptor, selectors.EVENT_READ)
            self._reap()
            while True:
                for key, _ in selector.select():
                    if key.fileobj is server:
                        control.answer_one(server, self._handle)
                    elif key.fileobj == woken:
                        os.read(woken, 4096)
                        self._reap()
                    else:
                        self.lifetime.read()
                        if self.lifetime.descriptor is None:
                            selector.unregister(key.fileobj)

    def end(self) -> None:
        """Kill everything that runs and wait for it: no cgroup can be removed before."""
        for process in self.components.values():
            process.kill()
        for node in self.nodes.values():
            if node.running:
                node.kill()
        for process in self.components.values():
            process.wait()

    def _handle(self, request: control.Request) -> None:
        match request:
            case {"do": "stop"}:
                raise Stop
            case {"do": str(fault), "node": str(name)} if fault in NODE_ACTIONS:
                NODE_ACTIONS[fault](self._node(name))
            case {"do": str(fault), "node": str(name), "gpu": dict(what)} if fault in GPU_ACTIONS:
                GPU_ACTIONS[fault](self._node(name), cast("GpuFault", what))
            case {"do": "kill-container", "node": str(name), "container": str(container)}:
                self._node(name).kill_container(container)
            case {"do": "load", "archive": str(archive)}:
                self._on_running_nodes(lambda node: node.import_images(Path(archive)))
            case {"do": "tag", "image": str(image)}:
                self._on_running_nodes(lambda node: node.name_userland(image))
            case {"do": "freeze-apiserver"}:
                self.components["kube-apiserver"].send_signal(signal.SIGSTOP)
            case {"do": "thaw-apiserver"}:
                self.components["kube-apiserver"].send_signal(signal.SIGCONT)
            case {"do": "restart-apiserver"}:
                self.components["kube-apiserver"].kill()
                self.components["kube-apiserver"].wait()
                self._start_component("kube-apiserver")
            case _:
                raise ClusterError(f"unknown request {dict(request)}: is this supervisor of another version?")

    def _on_running_nodes(self, action: Callable[[Node], None]) -> None:
        for node in self.nodes.values():
            if node.running:
                action(node)

    def _node(self, name: str) -> Node:
        if name not in self.nodes:
            raise ClusterError(f"there is no node {name!r}; there are {', '.join(self.nodes) or 'none'}.")
        return self.nodes[name]

    def _start_component(self, name: str) -> None:
        self.components[name] = start_logged(self.commands[name], self.spec.folder.logs / f"{name}.log")
        self.started[name] = time.monotonic()

    def _all_alive(self) -> bool:
        for name, process in self.components.items():
            if (code := process.poll()) is not None:
                raise ClusterError(_obituary(self.spec, name, code))
        return True

    def _reap(self) -> None:
        """Collect our dead, and the orphans that process 1 of a namespace is given; start components again."""
        for name, process in self.components.items():
            if (code := process.poll()) is None:
                continue
            if time.monotonic() - self.started[name] < _SHORTEST_LIFE_SECONDS:
                raise ClusterError(_obituary(self.spec, name, code))
            sys.stderr.write(f"{name} ended with {code}; starting it again\n")
            self._start_component(name)
        for node in self.nodes.values():
            # Remembers the end of a node's first process before the loop below could collect it.
            _ = node.running
        known = {process.pid for process in self.components.values()}
        while os.getpid() == 1 and (dead := _collect_one(known)):
            known.discard(dead)


def _collect_one(ours: set[int]) -> int | None:
    """Collect one dead child; None where there is none, or where the next one is a component just dead."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None or found.si_pid in ours:
        return None
    os.waitpid(found.si_pid, 0)
    return found.si_pid


def _obituary(spec: ClusterSpec, name: str, code: int) -> str:
    log = spec.folder.logs / f"{name}.log"
    last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
    return f"{name} ended with {code} soon after its start. The end of its log, {log}:\n{last}"


def _wake_on_signals() -> int:
    """Have every signal write a byte to the returned pipe, so that a select sees it."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Stop


def _say(line: str) -> None:
    """Tell the caller, if it still listens."""
    try:
        sys.stdout.write(line.replace("\n", "\r") + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody waits for the news; the lifetime pipe decides what follows.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
