"""Settings: what is read from where, and what a fault says."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from overspill_runtime.addresses import url_fault
from overspill_runtime.settings import (
    SECRET,
    CommonSettings,
    FieldError,
    Mode,
    SettingsError,
    describe,
    load,
    without_passwords,
)


class Flavour(StrEnum):
    SWEET = "sweet"
    SOUR = "sour"


class Settings(CommonSettings, frozen=True, kw_only=True):
    low: Annotated[float, Meta(ge=0)] = 1.0
    high: float = 4.0
    names: tuple[str, ...] = ()
    flavour: Flavour = Flavour.SWEET
    dry: bool = False
    token: Annotated[str, SECRET] | None = None

    def __post_init__(self) -> None:
        if self.high <= self.low:
            raise FieldError("high", self.high, f"a number above low ({self.low:g})")


def read(env=None, file=None):
    return load(Settings, service="cook", env=env or {}, file=file)


def fault(env=None, file=None) -> str:
    with pytest.raises(SettingsError) as caught:
        read(env, file)
    return str(caught.value)


def test_common_and_own_names():
    settings = read(
        {
            "OVERSPILL_CLUSTER": "west",
            "OVERSPILL_MODE": "observe",
            "OVERSPILL_COOK_LOW": "2.5",
            "OVERSPILL_COOK_NAMES": "a, b,,c",
            "OVERSPILL_COOK_DRY": "true",
            "OVERSPILL_COOK_FLAVOUR": "sour",
            "PATH": "/bin",
            "OVERSPILL_BAKER_LOW": "another service's",
        }
    )
    assert settings.cluster == "west"
    assert settings.mode is Mode.OBSERVE
    assert settings.low == 2.5
    assert settings.names == ("a", "b", "c")
    assert settings.dry is True
    assert settings.flavour is Flavour.SOUR


def test_an_empty_value_means_not_set():
    assert read({"OVERSPILL_COOK_LOW": ""}).low == 1.0
    assert read({"OVERSPILL_KUBECONFIG": " "}).kubeconfig is None


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("OVERSPILL_COOK_LOW", "-1", "a number >= 0"),
        ("OVERSPILL_COOK_LOW", "many", "a number >= 0"),
        ("OVERSPILL_COOK_LOW", "inf", "a number >= 0"),
        ("OVERSPILL_LEASE_SECONDS", "Infinity", "a number >= 1"),
        ("OVERSPILL_COOK_DRY", "perhaps", "true | false"),
        ("OVERSPILL_COOK_FLAVOUR", "bitter", "sweet | sour"),
        ("OVERSPILL_MODE", "maybe", "act | observe"),
        ("OVERSPILL_LISTEN", "8080", "HOST:PORT"),
        ("OVERSPILL_LISTEN", "127.0.0.1:99999", "to 65535"),
        ("OVERSPILL_NATS_URL", "nats://localhost:99999", "from 1 to 65535"),
        ("OVERSPILL_NATS_URL", "nats://localhost:0", "from 1 to 65535"),
        ("OVERSPILL_NATS_URL", "nats://localhost:abc", "from 1 to 65535"),
        ("OVERSPILL_NATS_URL", "nats://one,nats://two:65536", "from 1 to 65535"),
        ("OVERSPILL_NATS_URL", "nats://:4222", "HOST"),
        ("OVERSPILL_NATS_URL", "nats://[::1", "HOST"),
        ("OVERSPILL_COOK_HIGH", "0.5", "a number above low (1)"),
    ],
)
def test_a_fault_names_the_variable_the_value_and_what_is_accepted(name, value, accepted):
    text = fault({name: value})
    assert text.startswith(f"{name}: {value!r}" if name != "OVERSPILL_COOK_HIGH" else f"{name}: 0.5")
    assert accepted in text


def test_every_fault_is_reported_at_once():
    text = fault({"OVERSPILL_COOK_LOW": "x", "OVERSPILL_MODE": "y", "OVERSPILL_COOK_LOWW": "1"})
    assert len(text.splitlines()) == 3
    assert "OVERSPILL_COOK_LOWW: no such setting; did you mean OVERSPILL_COOK_LOW?" in text


def test_a_misspelt_common_name_is_a_fault_but_foreign_names_are_not():
    assert "did you mean OVERSPILL_NATS_URL?" in fault({"OVERSPILL_NATS_ULR": "nats://x"})
    read({"OVERSPILL_TEST_CACHE": "x", "OVERSPILL_SETTINGS": "f", "OVERSPILL_COOKERY": "1"})


def test_a_secret_is_never_shown():
    settings = read({"OVERSPILL_COOK_TOKEN": "hunter2", "OVERSPILL_NATS_URL": "nats://me:hunter2@host:4222"})
    assert settings.token == "hunter2"
    assert "hunter2" not in str(describe(settings))
    assert describe(settings)["nats_url"] == "nats://***@host:4222"
    assert describe(settings)["mode"] == "act"


@pytest.mark.parametrize(
    "url",
    [
        "nats://localhost",
        "nats://localhost:",
        "nats://u:p@[::1]:65535",
        "tls://token@one:1,nats://u:p%2Fq@two:4222/",
        "nats://a:1:2@host",
    ],
)
def test_addresses_that_can_be_used_are_accepted(url: str):
    assert read({"OVERSPILL_NATS_URL": url}).nats_url == url


@pytest.mark.parametrize(
    "url",
    [
        "nats://me:hunter2@host:99999",
        "nats://me:hunter2@host:abc",
        "nats://me:hunter2/hunter2@host",
        "nats://me:123/hunter2@host:4222",
        "nats://me:hunter2?hunter2@host",
        "nats://me:hunter2 hunter2@host",
        "nats://me:hunter2,hunter2@host",
        "nats://me:hunter2@one,nats://me:hunter2@two:0",
        "nats://me:hunter2@[::1",
        "nats://me:hunter2@",
    ],
)
def test_a_fault_of_an_address_tells_no_password(url: str):
    """However it was mistyped: a password with a character that ends it is the usual reason for a port that is none."""
    text = fault({"OVERSPILL_NATS_URL": url})
    assert text.startswith("OVERSPILL_NATS_URL: 'nats://***@")
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "url",
    ["me:hunter2@host:4222", "hunter2@host", "nats:/me:hunter2@host", "me:hunter2://hunter2@host", "nats.me:h@@host"],
)
def test_nor_does_one_whose_scheme_was_forgotten(url: str):
    text = fault({"OVERSPILL_NATS_URL": url})
    assert text.startswith("OVERSPILL_NATS_URL: '***@host")
    assert "me" not in text.partition(" is not accepted")[0]
    assert "hunter2" not in text


def test_what_stands_for_a_port_is_never_repeated():
    """It may be a token whose "?" was forgotten."""
    text = url_fault("http://host:8080token=hunter2")
    assert text is not None
    assert "hunter2" not in text


def test_only_an_address_with_a_password_has_its_at_sign_before_the_path():
    assert url_fault("http://prometheus:9090/api/@1?user=me@there") is None
    assert "%2F" in fault({"OVERSPILL_NATS_URL": "nats://me:123/4@host"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://:secret@host:4222", "nats://***@host:4222"),
        ("nats://secret@host", "nats://***@host"),
        ("nats://a:se@cret@host", "nats://***@host"),
        ("nats://a:se,cret@host", "nats://***@host"),
        ("nats://a:secret@[::1", "nats://***@[::1"),
        ("tls://a:secret@one:1,nats://b:secret@two", "tls://***@one:1,nats://***@two"),
        ("nats://one:1,nats://two", "nats://one:1,nats://two"),
        ("http://prometheus/api/@1", "http://prometheus/api/@1"),
    ],
)
def test_passwords_of_urls_are_hidden_however_they_are_written(url: str, shown: str):
    assert without_passwords(url) == shown


def test_the_file_is_read_and_the_environment_wins(tmp_path: Path):
    file = tmp_path / "o.toml"
    file.write_text('cluster = "west"\n[cook]\nlow = 2\nnames = ["a"]\n[baker]\nheat = 3\n')
    settings = read({"OVERSPILL_COOK_LOW": "3"}, file)
    assert (settings.cluster, settings.low, settings.names) == ("west", 3.0, ("a",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[cook]\nlowest = 1\n", "cook.lowest: no such setting"),
        ("low = 1\n", "low: no such setting"),
        ('[cook]\nlow = "x"\n', "cook.low: 'x' is not accepted"),
        ("[cook\n", "is not TOML"),
    ],
)
def test_a_bad_file_is_reported_with_its_path(tmp_path: Path, content, said):
    file = tmp_path / "o.toml"
    file.write_text(content)
    text = fault({}, file)
    assert str(file) in text
    assert said in text


def test_a_missing_file_is_reported(tmp_path: Path):
    assert "cannot be read" in fault({}, tmp_path / "none.toml")


def test_a_refused_url_is_told_without_its_password():
    with pytest.raises(SettingsError) as refused:
        load(CommonSettings, service="x", env={"OVERSPILL_NATS_URL": "http://user:topsecret@host:4222"})
    assert "'http://***@host:4222' is not accepted" in str(refused.value)
