"""Settings that depend on each other, and resource names."""

import pytest

from overspill_runtime.settings import SettingsError, describe, load
from overspill_sampler.settings import Settings


def read(**env):
    return load(Settings, service="sampler", env={f"OVERSPILL_SAMPLER_{name}": value for name, value in env.items()})


def test_url_and_query_come_together():
    assert read().query is None
    assert read(PROMETHEUS_URL="http://p:9090", QUERY="sum(x)").query == "sum(x)"
    with pytest.raises(SettingsError, match="OVERSPILL_SAMPLER_QUERY: None is not accepted: prometheus_url and query"):
        read(PROMETHEUS_URL="http://p:9090")
    with pytest.raises(SettingsError, match="OVERSPILL_SAMPLER_PROMETHEUS_URL"):
        read(QUERY="sum(x)")
    with pytest.raises(SettingsError, match=r"OVERSPILL_SAMPLER_PROMETHEUS_URL: .*with a port from 1 to 65535"):
        read(PROMETHEUS_URL="http://p:99999", QUERY="sum(x)")


@pytest.mark.parametrize("name", ["google.com/tpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"])
def test_any_resource_name(name):
    assert read(RESOURCE=name).resource == name


def test_a_resource_without_a_vendor_is_refused():
    with pytest.raises(SettingsError, match="OVERSPILL_SAMPLER_RESOURCE: 'gpu'"):
        read(RESOURCE="gpu")


def test_the_token_is_not_shown():
    assert "hush" not in str(describe(read(PROMETHEUS_TOKEN="hush")))
