"""Trees of cgroups, on copies of what the kernel shows under v1 and v2."""

from pathlib import Path

from oarlock_local import cgroups
from oarlock_local.slots import lease_any


def _v1(root: Path) -> Path:
    for controller in ("memory", "cpuset", "unified"):
        (root / controller).mkdir()
        (root / controller / "cgroup.procs").touch()
    (root / "cpuset/cpuset.cpus").write_text("0-1\n")
    (root / "cpuset/cpuset.mems").write_text("0\n")
    (root / "link").symlink_to("memory")
    return root


def _v2(root: Path) -> Path:
    (root / "cgroup.procs").touch()
    (root / "cgroup.controllers").write_text("cpuset cpu memory pids rdma\n")
    (root / "cgroup.subtree_control").write_text("memory\n")
    return root


def test_v1_gets_a_tree_in_every_hierarchy_once(tmp_path: Path) -> None:
    root = _v1(tmp_path)
    assert [path.name for path in cgroups.hierarchies(root)] == ["cpuset", "memory", "unified"]
    (root / "cpuset/oarlock-0-a").mkdir()
    cgroups.create("oarlock-0-a", root)
    assert all((root / name / "oarlock-0-a").is_dir() for name in ("memory", "cpuset", "unified"))


def test_a_v1_cpuset_can_take_processes_at_once(tmp_path: Path) -> None:
    root = _v1(tmp_path)
    cgroups.create("oarlock-0-a", root)
    assert (root / "cpuset/oarlock-0-a/cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset/oarlock-0-a/cpuset.mems").read_text() == "0\n"


def test_v2_gets_one_tree_and_the_controllers_that_the_kubelet_needs(tmp_path: Path) -> None:
    root = _v2(tmp_path)
    cgroups.create("oarlock-0-a", root)
    assert (root / "oarlock-0-a").is_dir()
    # A plain file keeps the last word written to it: the last controller that was available and not enabled.
    assert (root / "cgroup.subtree_control").read_text() == "+pids"


def test_a_removed_tree_leaves_nothing_however_deep_it_was(tmp_path: Path) -> None:
    root = _v2(tmp_path)
    (root / "oarlock-0-a/kubepods/pod1/container").mkdir(parents=True)
    (root / "oarlock-0-b").mkdir()
    cgroups.remove("oarlock-0-a", root)
    assert not (root / "oarlock-0-a").exists()
    assert (root / "oarlock-0-b").exists()


def test_sweep_spares_the_trees_of_living_clusters_and_of_others(tmp_path: Path) -> None:
    root = _v2(tmp_path)
    number, holder = lease_any(range(90, 100))
    dead, held = lease_any(range(90, 100))
    held.close()
    for name in (f"oarlock-{number}-node-1", f"oarlock-{dead}-node-1", "docker"):
        (root / name).mkdir()
    with holder:
        cgroups.sweep(root)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["docker", f"oarlock-{number}-node-1"]
