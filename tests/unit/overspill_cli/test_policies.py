"""What doctor says about the admission policies; deploy/ and the guide for users know the same ones."""

from pathlib import Path

import msgspec
import yaml

from overspill_cli.findings import Health
from overspill_cli.policies import (
    BINDINGS,
    DOES,
    GROUP_VERSION,
    GUIDE,
    LIMITING,
    LIMITING_BINDINGS,
    LIMITS_OF,
    POLICIES,
    limits_finding,
    policies_finding,
)
from overspill_events import names

ROOT = Path(__file__).parents[3]
KINDS = (POLICIES, BINDINGS)


class Server:
    """Answers of an API server by path."""

    def __init__(self, *, served=KINDS, installed=tuple(DOES), bound=tuple(DOES), refuses=()):
        there = dict(zip(KINDS, (installed, bound), strict=True))
        self.answers = {GROUP_VERSION: (200, {"resources": [{"name": kind} for kind in served]})}
        for kind in served:
            items = [{"metadata": {"name": name}} for name in there[kind]]
            self.answers[f"{GROUP_VERSION}/{kind}"] = (403, {}) if kind in refuses else (200, {"items": items})

    async def raw(self, _method, path):
        status, body = self.answers.get(path, (404, {}))
        return status, msgspec.json.encode(body)


async def judged(**answers):
    return await policies_finding(Server(**answers), version="v1.37.2")


async def test_all_installed_is_well():
    assert (await judged()).health is Health.OK


async def test_a_server_before_them_is_told_what_is_missing_and_where_to_read():
    found = await judged(served=())
    assert found.health is Health.WARNING
    assert "1.36" in found.detail
    assert all(what in found.detail for what in DOES.values())
    assert GUIDE in found.advice


async def test_one_that_is_absent_or_unbound_is_named_with_what_nobody_does():
    absent = await judged(installed=tuple(DOES)[1:])
    unbound = await judged(bound=tuple(name for name in DOES if name != "overspill-hold-queued-jobs"))
    assert "overspill-tolerate-external" in absent.detail
    assert "never overflow" in absent.detail
    assert "overspill-hold-queued-jobs" in unbound.detail
    assert "toleration" not in unbound.detail


async def test_what_may_not_be_read_is_not_known():
    found = await judged(refuses=(POLICIES,))
    assert (found.health, found.detail) == (Health.WARNING, f"not known: {POLICIES} answers 403")


async def test_the_lab_does_it_by_itself():
    assert (await policies_finding(Server(served=()), version="v1.37.2+overspill-lab")).health is Health.OK


class Limited(Server):
    """What limits the services is asked of it."""

    def __init__(self, *, installed=LIMITS_OF, bound=LIMITS_OF):
        super().__init__()
        for kind, there in ((LIMITING, installed), (LIMITING_BINDINGS, bound)):
            items = [{"metadata": {"name": name}} for name in there]
            self.answers[f"{GROUP_VERSION}/{kind}"] = (200, {"items": items})


async def test_services_that_nothing_limits_are_told():
    async def judged(server):
        return await limits_finding(server, version="v1.37.2")

    assert (await judged(Limited())).health is Health.OK
    absent = await judged(Limited(installed=LIMITS_OF[1:], bound=LIMITS_OF[:-1]))
    assert absent.health is Health.WARNING
    assert f"not bound: {LIMITS_OF[0]}, {LIMITS_OF[-1]}: " in absent.detail
    unread = await judged(Server())
    assert (unread.health, unread.detail) == (Health.WARNING, f"not known: {LIMITING} answers 404")


def test_the_limits_are_those_that_are_deployed():
    documents = yaml.safe_load_all((ROOT / "deploy/base/policies/validating.yaml").read_text())
    deployed = {one["metadata"]["name"] for one in documents if one["kind"] == "ValidatingAdmissionPolicy"}
    assert deployed == set(LIMITS_OF)


def test_the_policies_are_those_that_are_deployed():
    documents = yaml.safe_load_all((ROOT / "deploy/base/policies/mutating.yaml").read_text())
    deployed = {one["metadata"]["name"] for one in documents if one["kind"] == "MutatingAdmissionPolicy"}
    assert deployed == set(DOES)


def test_the_guide_speaks_of_each_and_by_the_right_names():
    guide = (ROOT / GUIDE).read_text()
    for word in (
        *DOES,
        names.BASE_TAINT,
        names.VIRTUAL_LABEL,
        names.ADMISSION_GATE,
        names.QUEUE_LABEL,
        names.SPILLABLE_LABEL,
    ):
        assert word in guide
