"""`make release` builds all of it, publishes nothing unasked, and nothing while anything is lacking."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from release import registry
from release.__main__ import main, release
from release.readiness import lacking
from release.wanted import CommandFailed, runner

from oarlock_local.binaries import HELM
from oarlock_local.build import built

from .conftest import COMMIT, DIGEST, PROJECTS, READY, ROOT, VERSION, WHEELS, Recorder, wanted


@pytest.fixture(scope="module")
def helm_program() -> Path:
    return built(HELM)


def test_a_dry_run_publishes_nothing_and_says_where_each_part_would_go(
    checkout: Path, helm_program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recorder(checkout)
    assert release(wanted(checkout), uv="uv", helm_program=helm_program, run=run) == 0
    assert run.publishing() == []
    told = capsys.readouterr().out
    assert f"registry.example.com/oarlock/trainer:{VERSION} (sha256:{'c' * 64})  would go to that registry" in told
    assert f"oarlock-{VERSION}.tgz  would go to {READY['chart_repository']}" in told
    assert f"oarlock_api-{VERSION}-py3-none-any.whl  would go to {READY['python_index']}" in told
    assert "Nothing was published. Before PUBLISH=yes does that:\nnothing is lacking" in told


def test_publishing_brings_every_part_to_its_place(
    checkout: Path, helm_program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recorder(checkout)
    assert release(wanted(checkout, publish=True), uv="uv", helm_program=helm_program, run=run) == 0
    out = checkout / "out/release"
    assert run.publishing() == [
        *(
            f"podman push --digestfile {out}/{part}.digest registry.example.com/oarlock/{part}:{VERSION}"
            for part in ("operator", "trainer")
        ),
        f"{helm_program} push {out}/oarlock-{VERSION}.tgz oci://registry.example.com/charts",
        " ".join(
            [
                "uv publish --publish-url https://packages.example.com/upload/",
                "--check-url https://packages.example.com/simple/",
                *(f"{out}/wheels/{name}" for name in WHEELS),
            ]
        ),
    ]
    assert "Nothing was published" not in capsys.readouterr().out


def image_there(builder: str, commit: str) -> str:
    labels = {"org.opencontainers.image.revision": commit}
    if builder == "docker":
        return json.dumps({"manifest": {"digest": f"sha256:{'e' * 64}"}, "image": {"config": {"Labels": labels}}})
    return json.dumps({"Digest": f"sha256:{'e' * 64}", "Labels": labels})


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
def test_a_release_that_stopped_half_way_goes_on_with_what_is_there(
    builder: str, checkout: Path, helm_program: Path
) -> None:
    there = {f"/operator:{VERSION}": image_there(builder, COMMIT), " pull oci:": "ours"}
    run = Recorder(checkout, there=there)
    again = wanted(checkout, publish=True, builder=builder)
    assert release(again, uv="uv", helm_program=helm_program, run=run) == 0
    assert [line.split()[1] for line in run.publishing()] == ["push", "publish"], "the other image, and wheels"
    (built_by,) = [line for line in run.commands if "release-images" in line]
    assert built_by.endswith(" IMAGES=trainer")
    listed = (checkout / "out/release/images.txt").read_text().splitlines()
    assert listed[0] == f"registry.example.com/oarlock/operator:{VERSION} there-before sha256:{'e' * 64}"
    assert len(listed) == 2


@pytest.mark.parametrize("builder", ["docker", "podman"])
def test_an_image_that_is_there_from_another_commit_ends_the_release(builder: str, checkout: Path) -> None:
    run = Recorder(checkout, there={f"/trainer:{VERSION}": image_there(builder, "b" * 40)})
    with pytest.raises(
        CommandFailed, match=rf"trainer:{VERSION} is in the registry already, .*: release another version"
    ):
        release(wanted(checkout, publish=True, builder=builder), uv="uv", helm_program=Path("helm"), run=run)
    assert run.publishing() == []


def test_another_chart_of_the_version_ends_the_release(checkout: Path, helm_program: Path) -> None:
    run = Recorder(checkout, there={" pull oci:": "another"})
    with pytest.raises(CommandFailed, match="has another chart"):
        release(wanted(checkout, publish=True), uv="uv", helm_program=helm_program, run=run)
    assert not [line for line in run.publishing() if "podman" not in line]


def test_a_registry_that_does_not_answer_is_not_one_that_has_nothing(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skopeo = tmp_path / "skopeo"
    skopeo.write_text("#!/bin/sh\necho 'dial tcp: connection refused' >&2\nexit 1\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    run = runner(checkout)
    with pytest.raises(CommandFailed, match="connection refused"):
        registry.pushed(wanted(checkout), "trainer", run)
    with pytest.raises(CommandFailed, match="no-such-program is not installed"):
        run(["no-such-program"], look=True)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"builder": ""}, "no builder of images works here"),
        ({"base": ""}, "name BASE="),
        ({"snapshot": ""}, "name BASE="),
        ({"image_prefix": "oarlock"}, "IMAGE_PREFIX=oarlock names no registry"),
        ({"chart_repository": ""}, "CHART_REPOSITORY"),
        ({"python_index": ""}, "PYTHON_INDEX="),
        ({"python_index_check": ""}, "PYTHON_INDEX_CHECK="),
    ],
)
def test_what_was_not_chosen_is_told_and_holds_up_all_publishing(
    chosen: dict[str, str], words: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recorder(checkout)
    unready = wanted(checkout, publish=True, **chosen)
    assert release(unready, uv="uv", helm_program=Path("helm"), run=run) == 1
    assert words in capsys.readouterr().err
    assert all(line.startswith("git ") for line in run.commands), "nothing is built either"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"status": " M Makefile\n"}, "changes that are not committed"),
        ({"tag": ""}, f"no tag v{VERSION}"),
        ({"tag": f"v{VERSION}-rc1\n"}, f"no tag v{VERSION}"),
    ],
)
def test_what_is_released_is_what_the_tag_names(said: dict[str, str], words: str, checkout: Path) -> None:
    (gap,) = lacking(
        wanted(checkout), Recorder(checkout, tag=said.get("tag", f"v{VERSION}\n"), status=said.get("status", ""))
    )
    assert words in gap


@pytest.mark.parametrize(
    "heading", ["Unreleased", f"{VERSION}1", f"{VERSION}-rc1", f"{VERSION}.1", "0.0.9 (2026-01-01)"]
)
def test_a_changelog_that_has_no_section_of_the_version_holds_up_publishing(heading: str, checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n- Something.\n")
    (gap,) = lacking(wanted(checkout), Recorder(checkout))
    assert "CHANGELOG.md" in gap


def test_versions_that_disagree_end_even_a_dry_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "pyproject.toml").unlink()
    (checkout / "pyproject.toml").write_text('version = "9.9.9"\n')
    run = Recorder(checkout)
    assert release(wanted(checkout), uv="uv", helm_program=Path("helm"), run=run) == 1
    assert f"charts/oarlock/Chart.yaml:5 has {VERSION}, and pyproject.toml 9.9.9" in capsys.readouterr().err
    assert run.commands == []


def test_a_distribution_without_a_wheel_ends_the_release_before_anything_is_pushed(checkout: Path) -> None:
    run = Recorder(checkout, wheels=WHEELS[1:])
    with pytest.raises(CommandFailed, match=f"{len(WHEELS) - 1} wheels of {len(WHEELS)} distributions"):
        release(wanted(checkout, publish=True), uv="uv", helm_program=Path("helm"), run=run)
    assert run.publishing() == []


def test_what_wheels_are_built_with_is_held_by_hashes_and_is_what_all_else_is_built_with(
    checkout: Path, helm_program: Path
) -> None:
    pinned = re.findall(
        r"^(\S+==\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", (ROOT / "build.txt").read_text(), re.MULTILINE
    )
    everywhere = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["build-constraint-dependencies"]
    assert [version for version, _ in pinned] == everywhere
    for path in PROJECTS:
        (needed,) = tomllib.loads(path.read_text())["build-system"]["requires"]
        assert re.split("[=><]", needed)[0] in {version.partition("==")[0] for version in everywhere}
    run = Recorder(checkout)
    assert release(wanted(checkout), uv="uv", helm_program=helm_program, run=run) == 0
    (built_by,) = [line for line in run.commands if line.startswith("uv build ")]
    assert " --build-constraints build.txt --require-hashes " in built_by


def test_only_the_upload_of_wheels_is_given_the_credentials_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "token:${UV_PUBLISH_TOKEN:-none}"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "secret")
    run = runner(tmp_path)
    assert run([str(uv), "build", "--out-dir", "publish"]) == "token:none\n"
    assert run([str(uv), "publish"]) == "token:secret\n"


@pytest.mark.parametrize("publish", [False, True])
def test_the_manifest_names_images_by_their_digests_as_soon_as_there_are_some(
    *, publish: bool, checkout: Path, helm_program: Path
) -> None:
    assert release(wanted(checkout, publish=publish), uv="uv", helm_program=helm_program, run=Recorder(checkout)) == 0
    text = (checkout / f"out/release/oarlock-{VERSION}.yaml").read_text()
    objects = {item["kind"]: item for item in yaml.load_all(text, yaml.CSafeLoader)}
    assert {"Namespace", "CustomResourceDefinition", "Deployment", "ClusterRole"} <= objects.keys()
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    named = f"@{DIGEST}" if publish else f":{VERSION}"
    assert container["image"] == f"registry.example.com/oarlock/operator{named}"
    trainer = {"name": "OARLOCK_OPERATOR_TRAINER_IMAGE", "value": f"registry.example.com/oarlock/trainer{named}"}
    assert trainer in container["env"]
    assert "Helm" not in json.dumps(objects)
    assert "# Never `kubectl delete -f` of this file" in text.partition("apiVersion:")[0]


def test_every_file_has_its_checksum(checkout: Path, helm_program: Path) -> None:
    assert release(wanted(checkout), uv="uv", helm_program=helm_program, run=Recorder(checkout)) == 0
    out = checkout / "out/release"
    lines = [line.split("  ") for line in (out / "SHA256SUMS").read_text().splitlines()]
    listed = {name: digest for digest, name in lines}
    there = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    assert listed.keys() == there.keys() - {"SHA256SUMS"}
    assert {f"oarlock-{VERSION}.yaml", f"oarlock-docs-{VERSION}.tar.gz", "images.txt"} < listed.keys()
    assert all(hashlib.sha256(there[name].read_bytes()).hexdigest() == digest for name, digest in listed.items())


def test_only_yes_publishes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--publish=true"])
    assert "yes publishes, and nothing else" in capsys.readouterr().err


def test_the_makefile_hands_over_what_was_chosen() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nrelease: ")[1].split("\n\n")[0]
    assert all(f"--{name.replace('_', '-')}='$({name.upper()})'" in recipe for name in [*READY, "publish"])


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # A make that runs the tests hands its own arguments on to this one.
    others = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=others | environment, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", [*(name.upper() for name in READY if name != "builder"), "PUBLISH"])
@pytest.mark.parametrize("value", ["$(shell touch {})", "'; touch {}; echo '"])
def test_a_value_that_make_or_the_recipe_would_run_is_refused_and_makes_no_file(
    name: str, value: str, tmp_path: Path
) -> None:
    typed = value.format(tmp_path / "made")
    for refused in (make("--dry-run", "release", f"{name}={typed}"), make("--dry-run", "release", **{name: typed})):
        assert refused.returncode == 2
        assert f"{name} has a $ or a quote in it" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["BASE", "IMAGE_PREFIX"])
def test_a_name_of_an_image_stays_one_word_of_the_command_that_builds_it(name: str, tmp_path: Path) -> None:
    built_with = make("images", "BUILDER=echo", f"{name}=x;touch {tmp_path}/made;")
    assert f"x;touch {tmp_path}/made;" in built_with.stdout
    assert list(tmp_path.iterdir()) == []
