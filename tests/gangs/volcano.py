"""Volcano's own scheduler and controllers beside a local cluster, as long as the block lives.

Both come from Volcano's Go module. Its webhooks are left out: they fill in what the operator writes itself, and refuse
queues that are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oarlock_local import definitions
from oarlock_local.binaries import VOLCANO_CONTROLLERS, VOLCANO_SCHEDULER
from oarlock_local.build import built
from oarlock_local.cluster import Cluster
from oarlock_local.ports import free_port
from oarlock_local.sources import VOLCANO
from tests.gangs.program import answers, running, serve

ACTIONS = "enqueue, allocate, backfill"
"""What Volcano's own configuration lets its scheduler do."""


@contextmanager
def running_volcano(cluster: Cluster, folder: Path) -> Iterator[Volcano]:
    """Run Volcano for the cluster for the length of the block. `folder` takes its files.

    Raises SourceMissing where Volcano's definitions cannot be had, and BuildError.
    """
    controllers, scheduler = built(VOLCANO_CONTROLLERS), built(VOLCANO_SCHEDULER)
    serve(cluster, [*definitions.volcano(), *definitions.volcanos_own()])
    volcano = Volcano(cluster, scheduler, folder)
    wanted = "--controllers=" + ",".join(f"+{name}-controller" for name in ("queue", "pg", "hypernode"))
    with running([str(controllers), *_options(cluster, free_port("127.0.0.1")), wanted], folder / "controllers.log"):
        try:
            volcano.schedule(ACTIONS)
            yield volcano
        finally:
            volcano.stop()


def _options(cluster: Cluster, probes: int) -> list[str]:
    health = ["--enable-healthz", f"--healthz-address=127.0.0.1:{probes}"]
    return ["--kubeconfig", str(cluster.kubeconfig), "--leader-elect=false", *health, "-v=3"]


@dataclass(frozen=True, slots=True)
class Volcano:
    """Volcano's scheduler, which is told by its configuration what it does in each round."""

    cluster: Cluster
    scheduler: Path
    folder: Path
    _program: ExitStack = field(default_factory=ExitStack)

    def schedule(self, actions: str, *plugins: str) -> None:
        """Start the scheduler anew, with these actions, and with plugins besides those of Volcano's own configuration."""
        self.stop()
        own = VOLCANO.fetch() / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
        # In a folder of its own: the scheduler reads it anew whenever a file beside it changes, as its log does.
        config = self.folder / "config/scheduler.conf"
        config.parent.mkdir(exist_ok=True)
        head, tiers = own.read_text().rstrip().split("\n", 1)
        assert head == f'actions: "{ACTIONS}"', f"Volcano's own actions are {head} now"
        more = "".join(f"\n  - name: {plugin}" for plugin in plugins)
        config.write_text(f'actions: "{actions}"\n{tiers}{more}\n')
        probes = free_port("127.0.0.1")
        command = [str(self.scheduler), *_options(self.cluster, probes), f"--scheduler-conf={config}"]
        command += [f"--cache-dump-dir={self.folder}"]
        started = self._program.enter_context(running(command, self.folder / "scheduler.log"))
        started.wait("it to be ready", lambda: answers(f"http://127.0.0.1:{probes}/healthz"))

    def stop(self) -> None:
        """End the scheduler, where it runs."""
        self._program.close()
