"""A controller waits until the cache has shown what it did."""

from overspill_lab.controllers.expectations import FORGOTTEN_AFTER_S, Expectations


def test_created_pods_must_be_seen() -> None:
    expected = Expectations()
    expected.begin("owner")
    expected.created("owner", ["a", "b"], now=0)
    assert not expected.are_met("owner", now=1)
    expected.saw("owner", "a", ending=False)
    assert not expected.are_met("owner", now=1)
    expected.saw("owner", "b", ending=False)
    assert expected.are_met("owner", now=1)


def test_deleted_pods_must_be_seen_ending() -> None:
    expected = Expectations()
    expected.begin("owner")
    expected.deleted("owner", ["a"], now=0)
    expected.saw("owner", "a", ending=False)
    assert not expected.are_met("owner", now=1)
    expected.saw("owner", "a", ending=True)
    assert expected.are_met("owner", now=1)


def test_a_watch_may_be_faster_than_the_reply() -> None:
    """Also when the pod has come and gone before the reply to its creation arrives."""
    expected = Expectations()
    expected.begin("owner")
    expected.saw("owner", "a", ending=False)
    expected.saw("owner", "a", ending=True)
    expected.created("owner", ["a"], now=0)
    expected.deleted("owner", ["a"], now=0)
    assert expected.are_met("owner", now=1)


def test_what_was_seen_before_the_work_began_does_not_count() -> None:
    expected = Expectations()
    expected.begin("owner")
    expected.saw("owner", "a", ending=True)
    expected.begin("owner")
    expected.deleted("owner", ["a"], now=0)
    assert not expected.are_met("owner", now=1)


def test_owners_do_not_disturb_each_other() -> None:
    expected = Expectations()
    expected.begin("one")
    expected.created("one", ["a"], now=0)
    expected.saw("other", "a", ending=False)
    assert expected.are_met("other", now=1)
    assert not expected.are_met("one", now=1)


def test_a_lost_event_does_not_block_for_ever() -> None:
    expected = Expectations()
    expected.begin("owner")
    expected.created("owner", ["a"], now=0)
    assert not expected.are_met("owner", now=FORGOTTEN_AFTER_S)
    assert expected.are_met("owner", now=FORGOTTEN_AFTER_S + 1)


def test_an_owner_may_go_while_it_is_worked_on() -> None:
    expected = Expectations()
    expected.begin("owner")
    expected.forget("owner")
    expected.created("owner", ["a"], now=0)
    expected.deleted("owner", ["a"], now=0)
    assert expected.are_met("owner", now=1)
