"""Who may write now, as whoever acts elsewhere in the leader's name asks."""

from overspill_kube.client import Client
from overspill_kube.fence import doubt_of, fenced
from overspill_kube.note_limits import NoteLimits
from overspill_runtime.clock import ManualClock


def test_a_client_tells_the_doubt_of_every_fence_around_it():
    doubts = {"inner": None, "outer": None}
    bare = Client(object(), clock=ManualClock(), note_limits=NoteLimits())
    client = fenced(fenced(bare, lambda: doubts["inner"]), lambda: doubts["outer"])
    assert doubt_of(bare) is None
    assert doubt_of(client) is None
    doubts["inner"] = "the lease was lost"
    assert doubt_of(client) == "the lease was lost"
    doubts["outer"] = "observing"
    assert doubt_of(client) == "observing"
