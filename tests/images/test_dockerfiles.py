"""What the Dockerfiles promise, held without building them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_api.contract.environment import LINK_PORT, RENDEZVOUS_PORT, STATUS_PORT
from oarlock_operator.manifests import pod
from oarlock_operator.process.settings import DEFAULT_TRAINER_IMAGE
from tests.images.dockerfile import ROOT, Ignored, Instruction, instructions, sources

OPERATOR, TRAINER = ROOT / "Dockerfile.operator", ROOT / "Dockerfile.trainer"
MAKEFILE = (ROOT / "Makefile").read_text()
BOTH = pytest.mark.parametrize("path", [OPERATOR, TRAINER], ids=["operator", "trainer"])


def all_of(path: Path, name: str) -> list[Instruction]:
    return [each for each in instructions(path) if each.name == name]


def final(path: Path, name: str) -> list[Instruction]:
    """Those of the last stage, which is the image."""
    stages = instructions(path)[-1].stage
    return [each for each in all_of(path, name) if each.stage == stages]


def project(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.splitlines()


@BOTH
def test_an_image_ends_as_a_user_who_is_not_root_by_number(path: Path) -> None:
    # A kubelet refuses a name under runAsNonRoot: it cannot know whether it is root's.
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final(path, "USER")[-1].argument)


def test_the_trainers_user_is_the_one_of_the_pods() -> None:
    assert final(TRAINER, "USER")[-1].argument == f"{pod.USER}:{pod.USER}"


@BOTH
def test_nothing_is_fetched_but_by_package_managers(path: Path) -> None:
    assert not all_of(path, "ADD")
    runs = " ".join(each.argument for each in all_of(path, "RUN"))
    # Where apt looks, which is itself a package manager.
    runs = re.sub(r"s#https\S+debian\S+ \|\\\$\)#http://snapshot.debian.org/archive/", "", runs)
    assert not re.search(r"\b(curl|wget|git)\b|https?://", runs)


@BOTH
def test_all_that_is_copied_exists_and_reaches_the_build(path: Path) -> None:
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    copied = [source for each in all_of(path, "COPY") for source in sources(each)]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        below = [name for name in tracked() if name == source or name.startswith(f"{source}/")]
        assert below, source
        assert not [name for name in below if ignored(name)]


def test_no_environment_history_or_output_reaches_a_build() -> None:
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    for name in (".git/config", ".venv/bin/python", ".env", "out/demo/model", "trainer/tests/test_x.py", "bench/s3.py"):
        assert ignored(name), name
    assert ignored("api/src/oarlock_api/__pycache__/x.pyc")


@BOTH
def test_every_build_argument_is_used_after_it_is_named(path: Path) -> None:
    listed = instructions(path)
    for at, argument in enumerate(listed):
        if argument.name == "ARG":
            name = argument.argument.partition("=")[0]
            users = [
                each
                for each in listed[at + 1 :]
                if (each.name in {"FROM", "ARG"} if argument.stage == 0 else each.stage == argument.stage)
            ]
            assert any(re.search(rf"\$\{{?{name}\b", each.argument) for each in users), name


@BOTH
def test_all_stages_have_the_python_that_the_environment_was_made_with(path: Path) -> None:
    froms = [each.words for each in all_of(path, "FROM")]
    stages = {words[2] for words in froms if words[1:2] == ["AS"]}
    assert {words[0] for words in froms} - {"${FABRIC}"} - stages == {"${BASE}"}
    default = next(each.argument for each in all_of(path, "ARG") if each.argument.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.\d+-slim", default)


@BOTH
def test_uv_comes_as_one_file_says_by_its_hashes(path: Path) -> None:
    runs = [each.argument for each in all_of(path, "RUN")]
    (installed,) = [run for run in runs if run.startswith("pip install")]
    assert installed == "pip install --no-cache-dir --require-hashes --requirement /tmp/uv.txt"
    assert "pip install --quiet --require-hashes --requirement uv.txt" in MAKEFILE
    assert not re.search(r"uv==", path.read_text() + MAKEFILE.replace("^uv==", ""))
    assert re.fullmatch(r"(#.*\n)*uv==[\d.]+( \\\n +--hash=sha256:[0-9a-f]{64}){5,}\n", (ROOT / "uv.txt").read_text())


def test_debians_packages_come_from_the_time_that_a_release_names(tmp_path: Path) -> None:
    """As the stage's own command changes where apt looks, in the two forms that bases have it."""
    (command,) = [each.argument for each in all_of(TRAINER, "RUN") if "SNAPSHOT" in each.argument]
    etc = tmp_path / "etc/apt"
    for folder in ("sources.list.d", "apt.conf.d"):
        (etc / folder).mkdir(parents=True)
    written = {
        "sources.list": "deb http://deb.debian.org/debian trixie main\n",
        "sources.list.d/debian.sources": "URIs: http://deb.debian.org/debian\nSuites: trixie trixie-updates\n\n"
        "URIs: http://deb.debian.org/debian-security\nSuites: trixie-security\n",
    }
    for name, words in written.items():
        (etc / name).write_text(words)
    here = ["sh", "-eu", "-c", command.replace("/etc/apt", str(etc))]
    subprocess.run(here, check=True, env={"PATH": "/usr/bin:/bin", "SNAPSHOT": ""})
    assert {name: (etc / name).read_text() for name in written} == written
    subprocess.run(here, check=True, env={"PATH": "/usr/bin:/bin", "SNAPSHOT": "20260101T000000Z"})
    then = "http://snapshot.debian.org/archive"
    assert (etc / "sources.list").read_text() == f"deb {then}/debian/20260101T000000Z/ trixie main\n"
    assert [line for line in (etc / "sources.list.d/debian.sources").read_text().splitlines() if "URIs" in line] == [
        f"URIs: {then}/debian/20260101T000000Z/",
        f"URIs: {then}/debian-security/20260101T000000Z/",
    ]


DIGEST = f"registry.example.com/python@sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release is built from: nothing in it is changed."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "operator").mkdir()
    for name in ("Makefile", "uv.txt", "operator/pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "a")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def release(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """`make release-images`, with a builder that only says what it is asked for."""
    command = ["make", "release-images", "BUILDER=echo", *(f"{name}={value}" for name, value in given.items())]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({}, "is no digest", id="without a base"),
        pytest.param({"BASE": "python:3.13-slim"}, "is no digest", id="a base by its tag"),
        pytest.param({"BASE": DIGEST[:-1]}, "is no digest", id="a digest cut short"),
        pytest.param({"BASE": DIGEST}, "is no time of snapshot.debian.org", id="packages of no day"),
        pytest.param({"BASE": DIGEST, "SNAPSHOT": "today"}, "is no time", id="packages of today"),
    ],
)
def test_a_release_is_built_from_nothing_that_changes(given: dict[str, str], words: str, checkout: Path) -> None:
    refused = release(checkout, **given)
    assert refused.returncode != 0
    assert words in refused.stdout


def test_a_release_is_built_from_what_is_committed(checkout: Path) -> None:
    given = {"BASE": DIGEST, "SNAPSHOT": "20260101T000000Z"}
    built = release(checkout, **given).stdout
    assert built.count(f"--build-arg BASE={DIGEST}") == 2
    assert built.count("--build-arg SNAPSHOT=20260101T000000Z") == 2
    (checkout / "new").touch()
    refused = release(checkout, **given)
    (checkout / "new").unlink()
    assert refused.returncode != 0
    assert "the checkout has changes" in refused.stdout


@pytest.mark.parametrize(
    ("path", "folder"), [(OPERATOR, "operator"), (TRAINER, "trainer")], ids=["operator", "trainer"]
)
def test_the_entry_point_is_a_command_of_the_installed_package_and_takes_its_arguments(path: Path, folder: str) -> None:
    (program,) = json.loads(final(path, "ENTRYPOINT")[0].argument)
    assert program in project(folder)["scripts"]
    arguments = [word for each in final(path, "CMD") for word in json.loads(each.argument)]
    command = [Path(sys.executable).with_name(program), *arguments, "--help"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


@BOTH
def test_labels_say_what_the_image_is_and_of_which_version(path: Path) -> None:
    labels = dict(word.split("=", 1) for each in final(path, "LABEL") for word in each.words)
    prefix = "org.opencontainers.image."
    assert {"title", "description", "licenses", "base.name", "version", "revision"} == {
        name.removeprefix(prefix) for name in labels
    }
    assert labels[f"{prefix}licenses"] == project("operator")["license"]


def test_the_version_is_everywhere_the_same() -> None:
    chart = yaml.safe_load((ROOT / "charts/oarlock/Chart.yaml").read_text())
    arguments = [each.argument for path in (OPERATOR, TRAINER) for each in final(path, "ARG")]
    versions = {each.partition("=")[2] for each in arguments if each.startswith("VERSION=")}
    versions |= {str(chart["appVersion"]), DEFAULT_TRAINER_IMAGE.rpartition(":")[2]}
    versions |= {project(path.parent.name)["version"] for path in ROOT.glob("*/pyproject.toml")}
    assert len(versions) == 1, versions


def test_the_ports_are_those_of_the_contract() -> None:
    assert final(OPERATOR, "EXPOSE")[0].argument == "8080"
    exposed = {int(word) for word in final(TRAINER, "EXPOSE")[0].words}
    assert exposed == {STATUS_PORT, LINK_PORT, RENDEZVOUS_PORT}


def test_no_gpu_is_asked_for_by_the_image_itself() -> None:
    # With NVIDIA_VISIBLE_DEVICES in it, a pod that asks for no GPU would get all of its node's.
    assert "NVIDIA_VISIBLE_DEVICES" not in " ".join(each.argument for each in all_of(TRAINER, "ENV"))


def test_the_driver_is_found_where_gkes_device_plugin_mounts_it() -> None:
    said = " ".join(each.argument for each in final(TRAINER, "ENV"))
    assert "LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/nvidia/lib:/usr/local/nvidia/lib64" in said
    assert "PATH=$PATH:/usr/local/nvidia/bin" in said


def test_the_trainers_image_leaves_out_what_its_bill_leaves_out() -> None:
    runs = " ".join(each.argument for each in all_of(TRAINER, "RUN"))
    assert "--no-emit-workspace --prune kubernetes" in runs
    assert 'if [ $$part = trainer ]; then prune="--prune kubernetes"; fi' in MAKEFILE
