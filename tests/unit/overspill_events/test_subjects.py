"""Subjects: derived from the catalogue, safe for any name, readable again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspill_events import EventError, reasons
from overspill_events.catalog import (
    CATALOG,
    GateOpened,
    PodEvicted,
    PodRef,
    ServiceStarted,
    WorkloadFinished,
    WorkloadRef,
)
from overspill_events.subjects import (
    cluster_of,
    key_of,
    name_of_token,
    readable_key,
    subject_filter,
    subject_for,
    subject_template,
    subject_token,
)
from tests.support.events import NAMES, events

ANY_NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
TOKEN = re.compile(r"[!-~]+")
POD = PodRef(namespace="team-a", name="train.0", uid="u")


@given(ANY_NAME)
def test_every_name_is_one_token_and_comes_back(name):
    token = subject_token(name)
    assert TOKEN.fullmatch(token)
    assert not set(token) & set(".*> ")
    assert name_of_token(token) == name


@given(st.lists(ANY_NAME, min_size=2, max_size=2, unique=True))
def test_different_names_are_different_tokens(names):
    assert len(set(map(subject_token, names))) == 2


@given(NAMES)
def test_kubernetes_names_only_trade_dots_for_underscores(name):
    assert subject_token(name) == name.replace(".", "_")


def test_an_empty_name_is_refused_by_the_field_it_comes_from():
    with pytest.raises(EventError, match=r"GateOpened\.node: is empty"):
        subject_for(GateOpened(node="", reason=reasons.GateReason.DRIFT), cluster="c", service="decider")
    with pytest.raises(EventError, match="cluster: is empty"):
        subject_for(GateOpened(node="n", reason=reasons.GateReason.DRIFT), cluster="", service="decider")


@pytest.mark.parametrize(
    ("event", "subject", "key"),
    [
        (
            GateOpened(node="ip-10-0-0-1.ec2.internal", reason=reasons.GateReason.HOME_FULL),
            "overspill.v1.prod.decider.gate-opened.ip-10-0-0-1_ec2_internal",
            "ip-10-0-0-1.ec2.internal",
        ),
        (
            PodEvicted(pod=POD, node="v", home_node="h", gpus=1),
            "overspill.v1.prod.evictor.pod-evicted.team-a.train_0",
            "team-a/train.0",
        ),
        (
            WorkloadFinished(workload=WorkloadRef(kind="Job", namespace="a", name="b", uid="u"), outcome="succeeded"),
            "overspill.v1.prod.admitter.workload-finished.job.a.b",
            "job/a/b",
        ),
        (
            ServiceStarted(service="sampler", version="1", mode="act"),
            "overspill.v1.prod.anybody.service-started.sampler",
            "sampler",
        ),
    ],
)
def test_the_subject_names_cluster_service_event_and_key(event, subject, key):
    assert subject_for(event, cluster="prod", service="anybody") == subject
    assert readable_key(subject) == key_of(event) == key


@given(events())
def test_filters_match_what_they_should(event):
    subject = subject_for(event, cluster="a.b", service="s")
    key = readable_key(subject).split("/")
    cls = type(event)
    assert cluster_of(subject) == "a.b"
    assert matches(subject_filter(), subject)
    assert matches(subject_filter(cls), subject)
    assert matches(subject_filter(cls, cluster="a.b", key=key), subject)
    assert not matches(subject_filter(cls, cluster="other"), subject)
    assert not matches(subject_filter(cls, key=[*key, "more"]), subject)
    others = [other for other in CATALOG.values() if other is not cls]
    assert not any(matches(subject_filter(other), subject) for other in others)


def test_templates_have_the_shape_of_real_subjects():
    for cls in CATALOG.values():
        assert subject_template(cls).startswith("overspill.v1.{cluster}.")
    assert subject_template(PodEvicted) == "overspill.v1.{cluster}.evictor.pod-evicted.{namespace}.{name}"


def matches(pattern: str, subject: str) -> bool:
    """NATS' own rule for wildcards."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and matches(".".join(wanted[:-1]), ".".join(tokens[: len(wanted) - 1]))
    return len(wanted) == len(tokens) and all(want in {"*", token} for want, token in zip(wanted, tokens, strict=True))
