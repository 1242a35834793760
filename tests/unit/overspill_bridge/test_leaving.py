"""What may leave the cluster, and with which environment."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_bridge.environment import Environment, Source, expand_arguments, resolve, sources_of
from overspill_bridge.support import unsupported
from overspill_bridge.wishes import Problem
from overspill_events.names import SECRETS_ANNOTATION
from overspill_events.reasons import SpillReason
from tests.support.bridge_cases import pod

TOKEN = {"name": "kube-api-access-x7x7x", "projected": {"sources": []}}
LEAVE = {"annotations": {SECRETS_ANNOTATION: "true"}}


def test_an_ordinary_pod_may_leave_and_its_token_stays():
    assert unsupported(pod(spec={"volumes": [TOKEN]})) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"hostPID": True}}, "spec.hostPID"),
        ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
        ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "spec.volumes[0] (v): hostPath"),
        ({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}, "persistentVolumeClaim"),
        ({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}}, "configMap"),
        ({"spec": {"volumes": [{"name": "mine", "projected": {"sources": []}}]}}, "projected"),
        ({"spec": {"volumes": [TOKEN]}, "meta": LEAVE}, "spec.automountServiceAccountToken"),
        ({"spec": {"initContainers": [{"name": "i"}]}}, "spec.initContainers"),
        ({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}}, "spec.containers"),
        ({"spec": {"resourceClaims": [{"name": "c"}]}}, "spec.resourceClaims"),
        ({"spec": {"imagePullSecrets": [{"name": "s"}]}}, "spec.imagePullSecrets"),
        ({"spec": {"runtimeClassName": "gvisor"}}, "spec.runtimeClassName"),
        ({"securityContext": {"privileged": True}}, "spec.containers[main].securityContext.privileged"),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "capabilities.add"),
        ({"workingDir": "/x"}, "workingDir"),
        ({"lifecycle": {"preStop": {}}}, "lifecycle"),
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "hostPort"),
        ({"image": ""}, "image"),
    ],
)
def test_each_thing_that_cannot_leave_is_named_by_its_field(change, field):
    (text,) = unsupported(pod(**change))
    assert field in text


def test_everything_that_is_wrong_is_said_at_once():
    texts = unsupported(pod(spec={"hostNetwork": True, "hostPID": True}, workingDir="/x"))
    assert len(texts) == 3


def test_an_empty_dir_may_stay_behind():
    assert unsupported(pod(spec={"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "default"}]})) == ()


# --- environment ---


def config(name):
    return Source(kind="ConfigMap", name=name)


def settled(one, sources=None):
    return resolve(one, one.spec.containers[0], sources or {})


def test_env_overrides_env_from_and_later_sources_win():
    one = pod(
        envFrom=[{"configMapRef": {"name": "a"}}, {"prefix": "P_", "configMapRef": {"name": "b"}}],
        env=[{"name": "TWO", "value": "env"}],
    )
    sources = {config("a"): {"ONE": "a", "TWO": "a", "P_X": "a"}, config("b"): {"X": "b"}}
    assert settled(one, sources).variables == {"ONE": "a", "TWO": "env", "P_X": "b"}


def test_names_that_no_environment_can_hold_are_left_out_and_told():
    one = pod(envFrom=[{"configMapRef": {"name": "a"}}])
    assert settled(one, {config("a"): {"1bad": "x", "good": "y", "with space": "z"}}) == Environment(
        variables={"good": "y"}, skipped=("1bad", "with space")
    )


def test_references_see_what_was_defined_before():
    one = pod(
        env=[
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(LATER)-$$(A)-$(A"},
            {"name": "LATER", "value": "x"},
            {"name": "EMPTY", "value": ""},
        ]
    )
    assert settled(one).variables == {"A": "1", "B": "1-$(LATER)-$(A)-$(A", "LATER": "x", "EMPTY": ""}


def test_fields_of_the_pod():
    paths = {
        "NAME": "metadata.name",
        "SPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "NODE": "spec.nodeName",
        "LABEL": "metadata.labels['overspill.dev/spillable']",
        "NOTE": "metadata.annotations['absent']",
    }
    one = pod(env=[{"name": n, "valueFrom": {"fieldRef": {"fieldPath": p}}} for n, p in paths.items()])
    found = settled(one).variables
    assert (found["NAME"], found["SPACE"], found["NODE"], found["LABEL"], found["NOTE"]) == (
        "web",
        "prod",
        "overspill",
        "true",
        "",
    )


@pytest.mark.parametrize(
    "value_from",
    [
        {"fieldRef": {"fieldPath": "status.podIP"}},
        {"fieldRef": {"fieldPath": "spec.nonsense"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
    ],
)
def test_what_cannot_be_resolved_is_refused_by_name(value_from):
    problem = settled(pod(env=[{"name": "X", "valueFrom": value_from}]))
    assert problem.reason is SpillReason.UNSUPPORTED
    assert "env[X]" in problem.detail


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"envFrom": [{"configMapRef": {"name": "a"}}]}, "ConfigMap a does not exist"),
        ({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}]}, "ConfigMap a does not"),
    ],
)
def test_a_mandatory_reference_is_waited_for_and_an_optional_one_is_not(container, words):
    problem = settled(pod(**container), {config("a"): None})
    assert problem.reason is SpillReason.MISSING_REFERENCE
    assert words in problem.detail
    optional = msgspec.json.decode(msgspec.json.encode(container).replace(b'"name":"a"', b'"name":"a","optional":true'))
    assert settled(pod(**optional), {config("a"): None}).variables == {}


def test_a_missing_key_is_told_from_a_missing_map():
    one = pod(env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}])
    assert "has no text under k" in settled(one, {config("a"): {"other": "v"}}).detail
    assert settled(one, {config("a"): {"k": "v"}}).variables == {"X": "v"}


def test_secrets_are_read_only_for_pods_that_let_them_leave():
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    problem = sources_of(pod(env=env))
    assert isinstance(problem, Problem)
    assert SECRETS_ANNOTATION in problem.detail
    assert sources_of(pod(env=env, meta=LEAVE)) == {Source(kind="Secret", name="s")}
    assert isinstance(sources_of(pod(envFrom=[{"secretRef": {"name": "s"}}])), Problem)


def test_a_secret_value_is_in_no_message():
    one = pod(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}], meta=LEAVE)
    problem = settled(one, {Source(kind="Secret", name="s"): {"other": "hunter2"}})
    assert "hunter2" not in problem.detail


def test_arguments_see_the_environment():
    assert expand_arguments(("--port=$(PORT)", "$(NONE)", "$$(PORT)"), {"PORT": "80"}) == (
        "--port=80",
        "$(NONE)",
        "$(PORT)",
    )


@given(st.text())
def test_text_without_dollars_is_left_as_it_is(text):
    if "$" not in text:
        assert expand_arguments((text,), {"A": "b"}) == (text,)
