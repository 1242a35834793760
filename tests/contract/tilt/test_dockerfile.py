"""The image's recipe: what is installed is pinned, who runs is nobody's root, and what is copied exists."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.contract.tilt.dockerfile import DOCKERFILE, instructions, stage
from tests.contract.tilt.evaluation import ROOT

ENDS = ("dev", "production")  # the stages that are run


def lasting(name: str) -> list[str]:
    """The build commands of a stage and of all stages that it begins with."""
    own = stage(name)
    parent = own[0].rest.split(" AS ")[0]
    runs = [one.rest for one in own if one.name == "RUN"]
    return (lasting(parent) if parent != "${BASE_IMAGE}" else []) + runs


def test_the_base_is_an_argument_with_a_default() -> None:
    assert instructions()[0].rest == "BASE_IMAGE=python:3.11-slim"
    starts = [one.rest.split(" AS ")[0] for one in instructions() if one.name == "FROM"]
    assert starts[0] == "${BASE_IMAGE}"
    assert set(starts[1:]) <= {one.stage for one in instructions()}, "every stage stands on the one base"


def test_the_last_stage_is_production() -> None:
    assert instructions()[-1].stage == "production"


@pytest.mark.parametrize("name", ENDS)
def test_nobody_is_root_and_the_arguments_name_the_program(name: str) -> None:
    found = stage(name)
    assert [one.rest for one in found if one.name == "USER"] == ["10001:10001"]
    assert [one.json() for one in found if one.name == "ENTRYPOINT"] == [["/opt/overspill/bin/python", "-m"]]
    assert not [one for one in found if one.name == "CMD"]
    last_run = max(number for number, one in enumerate(found) if one.name == "RUN")
    assert found.index(next(one for one in found if one.name == "USER")) > last_run


def test_python_does_not_import_from_the_working_folder() -> None:
    """It is a volume that others may write."""
    assert any("PYTHONSAFEPATH=1" in one.rest for one in stage("base") if one.name == "ENV")


def test_copied_paths_exist_and_the_context_holds_nothing_else() -> None:
    copied = {source for one in instructions() for source in one.copied_from_context()}
    assert all((ROOT / path).exists() for path in copied)
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied


def test_everything_installed_is_pinned_by_hash_or_made_here() -> None:
    commands = [part.strip() for one in instructions() if one.name == "RUN" for part in one.rest.split("&&")]
    pips = [part for part in commands if re.search(r"/pip (--python \S+ )?(install|wheel|download)\b", part)]
    assert pips
    for command in pips:
        pinned = "--require-hashes" in command and "-r /build/requirements" in command
        offline = "--no-index" in command and "--no-deps" in command
        assert pinned or offline, command
        if " wheel " in command:
            assert "--no-build-isolation" in command, f"build tools would come unpinned: {command}"
    assert not [part for part in commands if re.search(r"\b(apt-get|curl|wget)\b", part)]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock"])
def test_locks_that_are_used_hold_hashes_for_everything(lock: str) -> None:
    assert lock in DOCKERFILE.read_text()
    entries = re.split(r"\n(?=\S)", (ROOT / lock).read_text().strip())
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_the_build_lock_holds_what_the_build_group_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {re.split(r"[<>=~]", one)[0] for one in project["dependency-groups"]["build"]}
    assert {re.split(r"[<>=~]", one)[0] for one in project["build-system"]["requires"]} <= asked
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements-build.lock").read_text(), re.MULTILINE))
    assert asked <= locked


def test_tools_that_build_stay_behind() -> None:
    own = stage("production")
    assert [one.rest for one in own if one.name == "COPY"] == ["--from=build /opt/overspill /opt/overspill"]
    assert not [command for command in lasting("production") if "pip" in command]


def test_labels_say_what_it_is_and_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    label = next(one.rest for one in stage("production") if one.name == "LABEL")
    found = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', label))
    assert found["title"] == project["name"]
    assert found["description"] == project["description"]
    assert found["licenses"] == project["license"]
    assert f"VERSION={project['version']}" in [one.rest for one in stage("production") if one.name == "ARG"]
    assert {"version", "revision"} <= set(found)
