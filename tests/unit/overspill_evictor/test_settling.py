"""Which pod took the place of one that left, and how its return ends."""

from datetime import timedelta
from typing import Any

import msgspec

from overspill_events.catalog import PodRef, ReturnSettled
from overspill_events.reasons import Place
from overspill_evictor.memory import OpenReturn
from overspill_evictor.settling import settle, successors
from tests.unit.overspill_evictor.cluster import NOW, home, pod, virtual
from tests.unit.overspill_evictor.test_policy import open_return

NODES = (home(), virtual())


def evicted(name: str, **more: Any) -> OpenReturn:
    return open_return(name, evicted_at=NOW - timedelta(seconds=9), **more)


def told_by_a_predecessor(one: OpenReturn) -> OpenReturn:
    return msgspec.structs.replace(one, siblings=None)


def end_of(one: OpenReturn, *pods: Any, seconds: float = 0) -> ReturnSettled | None:
    heirs = successors([one], pods)
    ended = settle([one], heirs, NODES, now=NOW + timedelta(seconds=seconds))
    return ended[0].event if ended else None


def ref(name: str) -> PodRef:
    return PodRef(namespace="team", name=name, uid=f"p-{name}")


def test_a_successor_bound_at_home_ends_the_return_at_home() -> None:
    """Settled with who and where."""
    end = end_of(evicted("old"), pod("new", node="home-1", age=5))
    assert end == ReturnSettled(pod=ref("old"), place=Place.HOME, successor=ref("new"), node="home-1")


def test_another_home_node_than_expected_is_home_too_and_said() -> None:
    """kube-scheduler places, not we."""
    end = end_of(evicted("old", home_node="home-9"), pod("new", node="home-1", age=5))
    assert end is not None
    assert (end.place, end.detail) == (Place.HOME, "home-9 was expected")


def test_a_successor_on_the_virtual_node_is_a_failed_return() -> None:
    """It spilled again."""
    end = end_of(evicted("old"), pod("new", node="virtual-1", age=5))
    assert end is not None
    assert end.place is Place.VIRTUAL


def test_a_pending_successor_has_until_the_expiry() -> None:
    """Then the room is given back."""
    waiting = pod("new", node="", phase="Pending", age=5)
    assert end_of(evicted("old"), waiting, seconds=299) is None
    end = end_of(evicted("old"), waiting, seconds=300)
    assert end is not None
    assert (end.place, end.successor) == (Place.PENDING, ref("new"))


def test_no_successor_at_all_expires() -> None:
    """Nobody came."""
    assert end_of(evicted("old"), seconds=299) is None
    end = end_of(evicted("old"), seconds=300)
    assert end is not None
    assert (end.place, end.successor) == (Place.EXPIRED, None)


def test_an_unknown_node_is_neither_home_nor_virtual() -> None:
    """Not yet seen: wait for it."""
    assert end_of(evicted("old"), pod("new", node="home-new", age=5)) is None


def test_nothing_ends_before_the_eviction() -> None:
    """An intent under way is not settled by a pod that scaled up beside it."""
    assert end_of(open_return("old"), pod("new", node="home-1", age=1), seconds=999) is None


def test_pods_that_were_there_before_are_no_successors() -> None:
    """Known siblings, whatever their age; other owners; pods that leave themselves."""
    one = evicted("old")
    one = msgspec.structs.replace(one, siblings=frozenset({"p-sibling"}))
    strangers = [
        pod("sibling", node="home-1", age=1),
        pod("other", node="home-1", owner="other", age=1),
        pod("leaving", node="home-1", age=1, leaving=True),
        pod("failed", node="home-1", phase="Failed", age=1),
    ]
    assert end_of(one, *strangers) is None


def test_without_known_siblings_the_time_of_creation_decides() -> None:
    """After a restart: created in the second of the intent or later (creation times are whole seconds)."""
    one = told_by_a_predecessor(evicted("old"))  # intended 10 s ago
    assert end_of(one, pod("older", node="home-1", age=11)) is None
    assert end_of(one, pod("new", node="home-1", age=10)) is not None


def test_two_returns_of_one_owner_get_two_successors() -> None:
    """One to one, oldest with oldest; a successor of a settled return is taken."""
    first, second = evicted("a"), evicted("b")
    second = msgspec.structs.replace(
        second, envelope=msgspec.structs.replace(second.envelope, time=NOW - timedelta(seconds=5))
    )
    pods = [pod("x", node="home-1", age=8), pod("y", node="", phase="Pending", age=4), pod("z", node="home-1", age=2)]
    heirs = successors([second, first], pods)
    assert {left: heir.metadata.name for left, heir in heirs.items()} == {"p-a": "x", "p-b": "y"}
    heirs = successors([second], pods, taken={"p-x"})
    assert heirs["p-b"].metadata.name == "y"


def test_returns_of_two_owners_do_not_trade_successors() -> None:
    """A pod of another owner is no successor, whichever appeared first."""
    web, api = evicted("a", owner="web"), evicted("b", owner="api")
    pods = [pod("api-new", owner="api", node="home-1", age=8), pod("web-new", owner="web", node="home-1", age=4)]
    heirs = successors([web, api], pods)
    assert {left: heir.metadata.name for left, heir in heirs.items()} == {"p-a": "web-new", "p-b": "api-new"}


def test_of_two_that_appeared_in_one_second_each_return_gets_its_own() -> None:
    """The later return saw the first successor already; the earlier one must not take the other away from it."""
    first, second = evicted("a"), evicted("b")
    later = msgspec.structs.replace(second.envelope, time=NOW - timedelta(seconds=5))
    second = msgspec.structs.replace(second, envelope=later, siblings=frozenset({"p-of-a"}))
    pods = [pod("his-of-b", node="home-1", age=4), pod("of-a", node="home-1", age=4)]
    heirs = successors([first, second], pods)
    assert {left: heir.metadata.name for left, heir in heirs.items()} == {"p-a": "of-a", "p-b": "his-of-b"}
