"""The outbox's arithmetic: numbers without false gaps, and gaps where something is really lost."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from overspill_bus.outbox import Letter, Outbox
from overspill_events import Envelope


def letter(name: str = "x", *, must_ack: bool = False) -> Letter:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    envelope = Envelope(
        id=name, type="t", source="s", time=now, subject="a", epoch="e", sequence=0, correlation_id=name
    )
    return Letter(envelope=envelope, data=b"", must_ack=must_ack)


def take_number(outbox: Outbox) -> int:
    assert outbox.take() is not None
    number = outbox.number
    outbox.stored()
    return number


def test_letters_leave_in_order_with_numbers_from_one():
    outbox = Outbox(10)
    letters = [letter(str(n)) for n in range(3)]
    for each in letters:
        assert outbox.put(each) is None
    for number, each in enumerate(letters, 1):
        assert outbox.take() is each
        assert outbox.take() is each
        assert outbox.number == number
        outbox.stored()
    assert outbox.take() is None
    assert len(outbox) == 0


def test_when_full_the_oldest_waiting_is_lost_and_its_number_is_missing():
    outbox = Outbox(2)
    first, second, third = letter("1"), letter("2"), letter("3")
    outbox.put(first)
    outbox.put(second)
    assert outbox.put(third) is first
    assert outbox.lost == 1
    assert take_number(outbox) == 2
    assert take_number(outbox) == 3


def test_the_letter_on_its_way_keeps_its_number_while_others_are_lost():
    outbox = Outbox(2)
    first, second, third = letter("1"), letter("2"), letter("3")
    outbox.put(first)
    outbox.take()
    outbox.put(second)
    assert outbox.put(third) is second
    assert outbox.number == 1
    outbox.stored()
    assert outbox.take() is third
    assert outbox.number == 3


def test_a_buffer_of_one_keeps_the_letter_on_its_way_and_the_newest():
    outbox = Outbox(1)
    outbox.put(letter("1"))
    outbox.take()
    assert outbox.put(letter("2")) is None
    assert outbox.put(letter("3")).envelope.id == "2"


def test_a_withdrawn_letter_leaves_no_gap():
    outbox = Outbox(10)
    first, second = letter("1", must_ack=True), letter("2")
    outbox.put(first)
    outbox.put(second)
    assert outbox.withdraw(first)
    assert not outbox.withdraw(first)
    assert take_number(outbox) == 1


def test_a_letter_that_was_taken_but_not_sent_can_still_be_withdrawn():
    outbox = Outbox(10)
    first = letter("1", must_ack=True)
    outbox.put(first)
    outbox.take()
    assert outbox.withdraw(first)
    outbox.put(letter("2"))
    assert take_number(outbox) == 1


def test_a_letter_that_may_have_arrived_cannot_be_withdrawn():
    outbox = Outbox(10)
    first = letter("1", must_ack=True)
    outbox.put(first)
    outbox.take()
    first.in_flight = True
    assert not outbox.withdraw(first)
    first.in_flight, first.uncertain = False, True
    assert not outbox.withdraw(first)
    assert outbox.take() is first


def test_an_intent_that_must_make_room_leaves_no_gap():
    outbox = Outbox(1)
    intent = letter("1", must_ack=True)
    outbox.put(intent)
    assert outbox.put(letter("2")) is intent
    assert outbox.lost == 0
    assert take_number(outbox) == 1


def test_what_somebody_else_had_stored_uses_no_number():
    outbox = Outbox(1)
    outbox.put(letter("lost"))
    outbox.put(letter("theirs"))
    outbox.take()
    outbox.not_needed()
    outbox.put(letter("ours"))
    assert take_number(outbox) == 2  # 1 was lost, really


def test_what_the_stream_refuses_for_ever_is_a_gap():
    outbox = Outbox(10)
    outbox.put(letter("refused"))
    outbox.put(letter("fine"))
    outbox.take()
    outbox.refused()
    assert outbox.lost == 1
    assert take_number(outbox) == 2


@given(st.lists(st.sampled_from(["put", "put-intent", "take", "store", "skip", "refuse", "withdraw"]), max_size=60))
def test_numbers_only_grow_and_missing_ones_are_lost_ones(steps):
    """Whatever happens in whatever order: stored numbers ascend, and as many are missing as events were lost."""
    outbox, stored, known = Outbox(3), [], []
    for step in steps:
        if step in {"put", "put-intent"}:
            known.append(letter(str(len(known)), must_ack=step == "put-intent"))
            outbox.put(known[-1])
        elif step == "withdraw" and known:
            outbox.withdraw(known[0])
            known.pop(0)
        elif step == "take":
            outbox.take()
        elif step in {"store", "skip", "refuse"} and outbox.take() is not None:
            if step == "store":
                stored.append(outbox.number)
            {"store": outbox.stored, "skip": outbox.not_needed, "refuse": outbox.refused}[step]()
    outbox.put(letter("last"))
    while outbox.take() is not None:
        stored.append(outbox.number)
        outbox.stored()
    # An intent that makes room at the very end may leave nothing to send after a loss: then the gap is still to come.
    assert stored == sorted(set(stored))
    assert stored[-1] - len(stored) == outbox.lost
