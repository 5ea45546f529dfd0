"""StorageReady before any process runs: the words of scheduler, kubelet and API server, and what mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World

SETUP = 'FailedMount: MountVolume.SetUp failed for volume "output" : mount failed: exit status 32 Output: mount.nfs: '
REMEDIES = {
    "mount: /x: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.": (
        "install nfs-common"
    ),
    "mount.nfs: access denied by server while mounting 10.0.0.100:/exports/output": "exportfs -v",
    "mount.nfs: Connection timed out": "TCP port 2049",
    "mount.nfs: Connection refused": "TCP port 2049",
    "mount.nfs: Protocol not supported": "set nfsvers",
    "mount.nfs: Failed to resolve server storage.default.svc: Name or service not known": "give an address",
    "mount.nfs: mounting 10.0.0.100:/exports/otput failed, reason given by server: No such file or directory": (
        "The server has no such path"
    ),
    "mount.nfs: Stale file handle": "umount -f",
    "mount.nfs: an incorrect mount option was specified": "mountOptions",
    "applyFSGroup failed for vol 10.0.0.100#out#pvc-1##: open /var/lib/kubelet/pods/1/mount/flux: permission denied": (
        "the mode 2775"
    ),
}


def storage_ready(world: World) -> tuple[str, str, str]:
    found = next(each for each in world.job.status.conditions if each.type == "StorageReady")
    return found.status, found.reason, found.message


def stuck(words: str, *, scheduled: bool) -> World:
    """A gang of which rank 1 waits for something."""
    world = World()
    world.settle()
    pods = world.pods
    for name, pod in pods.items():
        obstacle = words if name == "flux-1-1" or not scheduled else ""
        pods[name] = replace(pod, scheduled=scheduled, node=f"gpu-{pod.rank}" if scheduled else "", obstacle=obstacle)
    world.one_pass()
    return world


@pytest.mark.parametrize("words", REMEDIES)
def test_a_mount_that_fails_is_told_with_its_node_and_with_what_mends_it(words: str) -> None:
    status, reason, message = storage_ready(stuck(f"{SETUP}{words}", scheduled=True))
    assert (status, reason) == ("False", "VolumeNotReady")
    assert message.startswith(f"flux-1-1 on gpu-1: {SETUP}")
    assert REMEDIES[words] in message


def test_a_mount_that_fails_for_an_unknown_reason_is_told_as_it_is() -> None:
    assert storage_ready(stuck("FailedMount: what nobody has seen", scheduled=True)) == (
        "False",
        "VolumeNotReady",
        "flux-1-1 on gpu-1: FailedMount: what nobody has seen",
    )


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ('0/4 nodes are available: persistentvolumeclaim "out" not found.', "Make the claim"),
        ("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "kubectl describe pvc"),
    ],
)
def test_a_claim_that_is_missing_or_unbound_is_told_once_for_all_pods(words: str, remedy: str) -> None:
    status, reason, message = storage_ready(stuck(words, scheduled=False))
    assert (status, reason) == ("False", "VolumeNotReady")
    assert message.count(words) == 1
    assert remedy in message


@pytest.mark.parametrize(
    "words", ["ImagePullBackOff: no such image", "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."]
)
def test_what_is_no_volumes_fault_leaves_the_storage_out(words: str) -> None:
    assert storage_ready(stuck(words, scheduled=words.startswith("Image")))[0] == "Unknown"


def test_a_namespace_that_takes_no_nfs_is_told_to_take_a_claim() -> None:
    said = 'pods "flux-1-0" is forbidden: violates PodSecurity: (volume "output" uses restricted volume type "nfs")'
    world = World(hindrance=said)
    world.one_pass()
    status, reason, message = storage_ready(world)
    assert (status, reason) == ("False", "VolumeNotReady")
    assert "spec.output.persistentVolumeClaim" in message


def test_it_is_over_once_the_pod_has_started() -> None:
    world = stuck("FailedMount: mount.nfs: Connection timed out", scheduled=True)
    world.pods["flux-1-1"] = replace(world.pods["flux-1-1"], obstacle="")
    world.start_all()
    world.running(step=1)
    assert storage_ready(world)[:2] == ("True", "Verified")
