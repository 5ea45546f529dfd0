"""The parent of a supervisor with nodes: it outlives the supervisor by as long as it takes to clear up after it.

It stays in this machine's own namespaces. When the supervisor is gone, whatever the reason, it removes what the
kernel leaves for a while (the link: a dead network namespace lingers until its last connections have timed out) or
for good (cgroups). When the keeper itself is killed, the supervisor dies with it, and the next `up` or `down` clears.
"""

import subprocess
import sys
from pathlib import Path

from oarlock_local import cgroups, network
from oarlock_local.folders import ClusterFolder
from oarlock_local.processes import die_with_parent
from oarlock_local.spec import ClusterSpec


def main() -> None:
    """Start the supervisor in its namespaces; arguments are the cluster's folder and the descriptors to hand on."""
    root, lifetime, *others = sys.argv[1:]
    # Read now: an abandoned supervisor takes the folder away.
    spec = ClusterSpec.load(ClusterFolder(Path(root)))
    supervisor = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-m", "oarlock_local.supervisor", root, lifetime),
        ],
        # The supervisor holds the cluster's lock and slot as well: neither may come free while it lives.
        pass_fds=[int(lifetime), *map(int, others)],
        # Safe: single-threaded, and prctl allocates nothing.
        preexec_fn=die_with_parent,  # noqa: PLW1509
    )
    supervisor.wait()
    # The slot is still ours, so link and cgroups cannot be another cluster's.
    network.remove_uplink(spec.addresses)
    for node in spec.node_names:
        cgroups.remove(cgroups.tree_name(spec.slot, node))


if __name__ == "__main__":
    main()
