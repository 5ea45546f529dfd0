"""The command `oarlock-local`."""

# ruff: noqa: T201 - a command prints

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from oarlock_local import cluster as clusters
from oarlock_local import fault_command, fault_report
from oarlock_local.binaries import ARGO_RULES, HELM, HELM_3, HELM_DOCS, PROMTOOL, VERSITYGW
from oarlock_local.build import binaries, built
from oarlock_local.errors import LocalError
from oarlock_local.folders import state_folder
from oarlock_local.launch import default_shares
from oarlock_local.status import table

_DESCRIPTION = """\
A real Kubernetes on this Linux machine, without Docker: the released control plane, kubelets and containerd, built
once from source; every node in its own namespaces. Nothing stays behind after `down`."""

_EXAMPLES = """\
examples:
  oarlock-local up --nodes 3 --gpus 8          three nodes that advertise eight GPUs each
  oarlock-local kubectl dev -- get nodes       (or: export KUBECONFIG=$(oarlock-local kubeconfig dev))
  oarlock-local fault dev cut node-2           the node works on, unheard
  oarlock-local fault dev gpu node-1 --gpu 3 --xid 79
  oarlock-local down --all

Pods with `runtimeClassName: host-userland` and `image: oarlock.local/host:1` run this machine's own Python.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        status: int = given.run(given)
    except LocalError as error:
        print(f"oarlock-local: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\noarlock-local: interrupted; nothing of an unfinished cluster is left", file=sys.stderr)
        return 130
    return status


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    # An exception, unlike the default action, lets an unfinished cluster be cleared away.
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oarlock-local",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help=f"default: {state_folder(os.environ)}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start a cluster and wait until it is ready")
    up.set_defaults(run=_up)
    up.add_argument("name", nargs="?", default="dev", help="default: dev")
    size = up.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=int, default=3, metavar="N", help="default: 3")
    size.add_argument("--control-plane-only", action="store_true", help="no nodes: needs no root, runs no pods")
    up.add_argument(
        "--gpus", type=int, default=0, metavar="G", help="nvidia.com/gpu of each node; pretended, see fault"
    )
    up.add_argument(
        "--share",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder that host-userland pods see, read-only, at the same path; besides this Python's own",
    )
    up.add_argument(
        "--image", action="append", default=[], metavar="NAME", help="one more name for the image oarlock.local/host:1"
    )
    up.add_argument("--foreground", action="store_true", help="stay, and take the cluster down at Ctrl-C")

    down = commands.add_parser("down", help="take a cluster down and remove everything of it")
    down.set_defaults(run=_down)
    down.add_argument("name", nargs="?", default="dev", help="default: dev")
    down.add_argument("--all", action="store_true", help="all clusters of this state folder")

    build = commands.add_parser("build", help="build all programs into the cache now, instead of at the first use")
    build.set_defaults(run=_build)

    status = commands.add_parser("status", help="list the clusters")
    status.set_defaults(run=_status)

    kubectl = commands.add_parser("kubectl", help="run the kubectl that fits the cluster: kubectl NAME -- get pods")
    kubectl.set_defaults(run=_kubectl)
    kubectl.add_argument("name")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGS")

    kubeconfig = commands.add_parser("kubeconfig", help="print the path of the cluster's kubeconfig")
    kubeconfig.set_defaults(run=_kubeconfig)
    kubeconfig.add_argument("name", nargs="?", default="dev", help="default: dev")

    fault = commands.add_parser("fault", help="do a fault to a running cluster, or mend it")
    fault.set_defaults(run=_fault)
    fault_command.add_arguments(fault)

    volume = commands.add_parser("volume", help="print this machine's folder behind a claim of the class `shared`")
    volume.set_defaults(run=_volume)
    volume.add_argument("name")
    volume.add_argument("claim", metavar="NAMESPACE/CLAIM")

    load = commands.add_parser("load", help="import an image archive (OCI or Docker) into every node")
    load.set_defaults(run=_load)
    load.add_argument("name")
    load.add_argument("archive", type=Path)

    tag = commands.add_parser("tag", help="give the image oarlock.local/host:1 one more name on every node")
    tag.set_defaults(run=_tag)
    tag.add_argument("name")
    tag.add_argument("image")
    return parser


def _build(_given: argparse.Namespace) -> int:
    print(binaries(nodes=True))
    # Last what only tests of the chart need, and what takes longest.
    for tool in (HELM, VERSITYGW, ARGO_RULES, HELM_DOCS, HELM_3, PROMTOOL):
        print(built(tool))
    return 0


def _up(given: argparse.Namespace) -> int:
    began = time.monotonic()

    def report(news: str) -> None:
        print(f" {'cluster':10} {news} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)

    nodes = 0 if given.control_plane_only else given.nodes
    wanted = {
        "nodes": nodes,
        "gpus": given.gpus,
        "shares": [*default_shares(), *given.share],
        "images": given.image,
        "state": given.state_dir,
        "report": report,
    }
    ready = f"{nodes} nodes Ready" if nodes else "control plane ready"
    how = f"kubectl: oarlock-local kubectl {given.name} -- get pods -A"
    if given.foreground:
        with clusters.running(given.name, **wanted):
            report(f"{ready}   {how}   Ctrl-C takes it down")
            signal.pause()
    clusters.up(given.name, **wanted)
    report(f"{ready}   {how}")
    return 0


def _down(given: argparse.Namespace) -> int:
    state = given.state_dir or state_folder(os.environ)
    names = [given.name]
    if given.all:
        names = sorted({path.stem if path.suffix == ".lock" else path.name for path in state.glob("*")})
    for name in names:
        if clusters.down(name, state=given.state_dir):
            print(f" cluster    {name} is down, and nothing of it is left", file=sys.stderr)
        else:
            print(f" cluster    there is no {name}; `oarlock-local status` lists those that are", file=sys.stderr)
    return 0


def _status(given: argparse.Namespace) -> int:
    print(table(given.state_dir or state_folder(os.environ)))
    return 0


def _kubectl(given: argparse.Namespace) -> int:
    cluster = clusters.find(given.name, state=given.state_dir)
    arguments = given.arguments[1:] if given.arguments[:1] == ["--"] else given.arguments
    program = str(cluster.kubectl_path)
    os.execv(program, [program, "--kubeconfig", str(cluster.kubeconfig), *arguments])  # noqa: S606 - becomes kubectl


def _kubeconfig(given: argparse.Namespace) -> int:
    print(clusters.find(given.name, state=given.state_dir).kubeconfig)
    return 0


def _fault(given: argparse.Namespace) -> int:
    cluster = clusters.find(given.name, state=given.state_dir)
    what = fault_command.of_a_gpu(given)
    gangs = fault_report.whom_it_meets(cluster, given.kind, given.target)
    cluster.fault(given.kind, given.target, **what)
    print(fault_report.what_was_done(given.kind, given.target, what))
    if gangs:
        print(gangs)
    return 0


def _volume(given: argparse.Namespace) -> int:
    namespace, _, claim = given.claim.rpartition("/")
    print(clusters.find(given.name, state=given.state_dir).volume(claim, namespace or "default"))
    return 0


def _load(given: argparse.Namespace) -> int:
    clusters.find(given.name, state=given.state_dir).load(given.archive)
    return 0


def _tag(given: argparse.Namespace) -> int:
    clusters.find(given.name, state=given.state_dir).tag(given.image)
    return 0
