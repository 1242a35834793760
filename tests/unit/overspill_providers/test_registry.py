"""The providers' setting: what is accepted, and errors that help without telling the token."""

import pytest

from overspill_providers.protocol import InstanceState
from overspill_providers.registry import build_providers


def test_several_providers_keep_their_order():
    providers = build_providers("b=http://one:1?token=x@x, a=https://two/path?token=y")
    assert [provider.name for provider in providers] == ["b", "a"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("", "no provider named"),
        ("http://host?token=secret", "a name of lower-case letters"),
        ("Bad_Name=http://host?token=secret", "Bad_Name"),
        ("fake=ftp://host?token=secret", "'ftp'"),
        ("fake=http://?token=secret", "a host is missing"),
        ("fake=http://host:99999?token=secret", "its port is no number from 1 to 65535"),
        ("fake=http://host:0?token=secret", "its port is no number from 1 to 65535"),
        ("fake=http://host:8080token=secret", "its port is no number from 1 to 65535"),
        ("fake=http://host:8080&token=secret", "its port is no number from 1 to 65535"),
        ("fake=http://[::1?token=secret", "no URL"),
        ("fake=http://host", "no token"),
        ("fake=http://host?token=secret&region=x", "more parameters than token"),
        ("fake=http://host?token=x&secret", "more parameters than token"),
        ("fake=http://host?token=x&secret==", "more parameters than token"),
        ("fake=http://host?token=secret,fake=http://other?token=secret", "given twice"),
    ],
)
def test_a_bad_entry_is_named_and_its_token_is_not(setting, words):
    with pytest.raises(ValueError, match="providers") as error:
        build_providers(setting)
    assert words in str(error.value)
    assert "secret" not in str(error.value)


def test_a_state_that_nobody_knows_is_no_end():
    assert InstanceState.read("hibernating") is InstanceState.UNKNOWN
    assert InstanceState.read("running") is InstanceState.RUNNING
