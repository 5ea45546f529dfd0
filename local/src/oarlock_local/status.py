"""The list of clusters that `oarlock-local status` prints."""

from pathlib import Path

from oarlock_local.api import ApiServer
from oarlock_local.errors import LocalError
from oarlock_local.folders import ClusterFolder
from oarlock_local.launch import ready_nodes
from oarlock_local.spec import ClusterSpec
from oarlock_local.teardown import is_alive


def table(state: Path) -> str:
    """One line per cluster: its name, how it is, its Ready nodes, its kubeconfig."""
    rows = [("NAME", "STATE", "NODES", "GPUS", "KUBECONFIG")]
    for path in sorted(state.glob("*/cluster.json")):
        spec = ClusterSpec.load(ClusterFolder(path.parent))
        state_word, nodes = _health(spec)
        rows.append((spec.folder.name, state_word, nodes, str(spec.gpus * spec.nodes), str(spec.folder.kubeconfig)))
    if len(rows) == 1:
        return f"no clusters in {state}; `oarlock-local up` starts one"
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _health(spec: ClusterSpec) -> tuple[str, str]:
    if not is_alive(spec.folder):
        return "dead", "-"
    try:
        with ApiServer(spec.folder.kubeconfig) as api:
            return "running", f"{len(ready_nodes(api))}/{spec.nodes}"
    except (LocalError, FileNotFoundError):
        return "starting", f"?/{spec.nodes}"
