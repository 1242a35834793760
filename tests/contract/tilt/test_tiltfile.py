"""`tilt up` without Tilt: the Tiltfile runs, what it names exists, and what it builds and applies is what deploy/ has."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import starlark

from tests.contract.tilt.dockerfile import instructions, stage
from tests.contract.tilt.evaluation import ROOT, TILTFILE, Recorded, TiltError, assembled, evaluate

SERVICES = sorted(folder.name.removeprefix("overspill_") for folder in (ROOT / "services").glob("overspill_*"))
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "Job"}


@pytest.fixture(scope="module")
def told() -> Recorded:
    return evaluate()


@pytest.fixture(scope="module")
def applied(told: Recorded) -> dict[str, dict[str, Any]]:
    """The workloads of what the Tiltfile applies, by name."""
    objects = [one for folder in told.yaml for one in assembled(ROOT / folder)]
    return {one["metadata"]["name"]: one for one in objects if one["kind"] in WORKLOADS}


def containers(workload: dict[str, Any]) -> list[dict[str, Any]]:
    return workload["spec"]["template"]["spec"]["containers"]


def test_it_is_short() -> None:
    assert len(TILTFILE.read_text().splitlines()) <= 80


def test_only_the_kind_cluster_is_allowed(told: Recorded) -> None:
    """Tilt by itself would go on with any cluster that looks local."""
    assert told.contexts == ["kind-home-overspill"]
    for other in ("kind-kind", "production", "minikube"):
        with pytest.raises(TiltError, match=other):
            evaluate(context=other)


def test_the_guard_stands_before_anything_that_acts() -> None:
    text = TILTFILE.read_text()
    assert text.index("allow_k8s_contexts(") < text.index("fail(") < text.index("load(") < text.index("k8s_yaml(")


def test_what_is_applied_is_the_local_overlay_of_deploy(told: Recorded) -> None:
    assert told.yaml == ["deploy/overlays/local"]


def test_every_service_is_a_resource(told: Recorded) -> None:
    assert SERVICES
    assert {f"overspill-{name}" for name in SERVICES} <= set(told.k8s)


def test_every_resource_is_a_workload_of_deploy_and_the_other_way_round(
    told: Recorded, applied: dict[str, dict[str, Any]]
) -> None:
    assert set(told.k8s) == set(applied)


def test_everything_is_in_a_group(told: Recorded) -> None:
    assert all(resource["labels"] for resource in (*told.k8s.values(), *told.local.values()))


def test_dependencies_exist_and_end(told: Recorded) -> None:
    names = set(told.k8s) | set(told.local)
    started: set[str] = set()
    while left := names - started:
        ready = {name for name in left if set(told.k8s.get(name, {}).get("resource_deps", ())) <= started}
        assert ready, f"wait for each other, or for what is not there: {sorted(left)}"
        started |= ready


def test_services_wait_for_their_streams_the_bridge_for_its_provider_the_admitter_for_its_kinds(told: Recorded) -> None:
    for name in SERVICES:
        assert "overspill-topology" in told.k8s[f"overspill-{name}"]["resource_deps"]
    assert "nats" in told.k8s["overspill-topology"]["resource_deps"]
    assert "fake-provider" in told.k8s["overspill-bridge"]["resource_deps"]
    assert "overspill-crds" in told.k8s["overspill-admitter"]["resource_deps"]


def test_forwarded_ports_are_the_containers_own_and_free_of_each_other(
    told: Recorded, applied: dict[str, dict[str, Any]]
) -> None:
    here: list[str] = []
    for name, resource in told.k8s.items():
        opened = {port["containerPort"] for one in containers(applied[name]) for port in one.get("ports", ())}
        for forward in resource["port_forwards"]:
            local, there = forward.split(":")
            assert int(there) in opened, f"{name}: {forward}"
            here.append(local)
        for url in (link["url"] for link in resource["links"]):
            port = re.fullmatch(r"http://localhost:(\d+)/.*", url)
            assert port, url
            assert port[1] in {one.split(":")[0] for one in resource["port_forwards"]}, url
    assert len(here) == len(set(here))
    assert "4222" in here
    assert all(told.k8s[f"overspill-{name}"]["port_forwards"] for name in SERVICES)


def test_the_image_that_is_built_is_the_one_that_deploy_runs(
    told: Recorded, applied: dict[str, dict[str, Any]]
) -> None:
    assert set(told.images) == {"overspill"}
    ours = {name for name in applied if name.startswith("overspill-")} | {"fake-provider", "fake-gpus"}
    for name in ours:
        for container in containers(applied[name]):
            assert container["image"] == "overspill", name
            assert "command" not in container, f"{name}: the image's entry point is what starts, args name the program"


def test_programs_that_deploy_names_are_in_the_repository(applied: dict[str, dict[str, Any]]) -> None:
    for name, workload in applied.items():
        for container in containers(workload):
            if container["image"] != "overspill":
                continue
            module = container["args"][0].replace(".", "/")
            found = [
                path
                for root in ("services", "libs")
                for path in (ROOT / root / module / "__main__.py", ROOT / root / f"{module}.py")
                if path.is_file()
            ]
            assert found, f"{name}: {container['args'][0]}"


def test_the_build_gets_what_the_dockerfile_copies_and_no_more(told: Recorded) -> None:
    image = told.images["overspill"]
    copied = {source for one in instructions() for source in one.copied_from_context()}
    assert set(image["only"]) == copied
    assert all((ROOT / path).exists() for path in image["only"])
    assert (ROOT / image["dockerfile"]).is_file()


def test_live_update_reaches_the_sources_that_the_dev_stage_installed(told: Recorded) -> None:
    image = told.images["overspill"]
    assert image["target"] == "dev"
    first, *syncs = image["live_update"]
    assert first["step"] == "fall_back_on"
    assert set(first["files"]) == set(image["only"]) - {"README.md", "LICENSE", "services", "libs"}
    dev = stage("dev")
    targets = {source: one.target for one in dev for source in one.copied_from_context()}
    assert {step["local"]: step["remote"] for step in syncs} == {name: targets[name] for name in ("services", "libs")}
    assert image["entrypoint"] == next(one.json() for one in dev if one.name == "ENTRYPOINT")


def test_the_restart_file_is_where_the_user_writes_and_no_volume_hides_it(
    told: Recorded, applied: dict[str, dict[str, Any]]
) -> None:
    folder = told.images["overspill"]["restart_file"].rpartition("/")[0]
    assert folder == next(one.rest for one in stage("dev") if one.name == "WORKDIR")
    assert re.search(rf"chown 10001:10001 .*{folder}\b", next(one.rest for one in stage("dev") if one.name == "RUN"))
    for workload in applied.values():
        for container in containers(workload):
            assert all(not folder.startswith(one["mountPath"]) for one in container.get("volumeMounts", ()))


def test_local_overlay_lets_live_update_write() -> None:
    """A read-only root refuses synchronised files; the overlay opens it for Deployments and changes nothing else of them."""
    text = (ROOT / "deploy/overlays/local/kustomization.yaml").read_text()
    assert re.search(r"readOnlyRootFilesystem[\s\S]{0,40}false", text)


def test_buttons_start_the_wave_and_end_it_only_when_pressed(told: Recorded) -> None:
    for name, resource in told.local.items():
        assert (resource["auto_init"], resource["trigger_mode"]) == (False, "manual"), name
    start, end = told.local["start-research-wave"]["cmd"], told.local["end-research-wave"]["cmd"]
    assert (
        start.index("wave/research")
        < start.index("kubectl --context kind-home-overspill wait")
        < start.index("wave/inference")
    )
    assert "delete job --all --namespace research" in end


def test_commands_name_their_context_and_folders_that_exist(told: Recorded) -> None:
    for name, resource in told.local.items():
        if not isinstance(resource["cmd"], str):
            continue
        for command in resource["cmd"].split(" && "):
            words = shlex.split(command)
            if words[0] == "kubectl":
                assert words[1:3] == ["--context", "kind-home-overspill"], f"{name}: {command}"
            if "-k" in words:
                assert (ROOT / words[words.index("-k") + 1] / "kustomization.yaml").is_file(), command


def test_unit_tests_run_by_the_repositorys_own_command(told: Recorded) -> None:
    unit = told.local["unit-tests"]
    assert unit["cmd"] == ["make", "test", "TEST_ARGS=tests/unit"]
    assert all((ROOT / path).is_dir() for path in unit["deps"])


def test_only_chooses_services_and_keeps_what_they_need(told: Recorded) -> None:
    chosen = evaluate(only=["sampler", "bridge"])
    assert {name for name in chosen.enabled or () if name.startswith("overspill-")} == {
        "overspill-crds", "overspill-credentials", "overspill-topology", "overspill-sampler", "overspill-bridge",
    }  # fmt: skip
    assert set(told.enabled or ()) == set(told.k8s) | set(told.local)
    for name in chosen.enabled or ():
        assert set(chosen.k8s.get(name, {}).get("resource_deps", ())) <= set(chosen.enabled or ())
    with pytest.raises(TiltError, match="smapler"):
        evaluate(only=["smapler"])


def test_a_parameter_that_tilt_does_not_know_is_an_error_here_too() -> None:
    with pytest.raises(starlark.StarlarkError, match="port_forward"):
        evaluate(source="k8s_resource('x', port_forward=1)")
