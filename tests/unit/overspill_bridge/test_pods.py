"""What the bridge knows of its pods: the informer's word, and its own writes until that comes."""

import msgspec

from overspill_bridge.world import Pods
from overspill_kube.informer import Change, ChangeKind
from tests.support.bridge_cases import UID, pod


def version(number, **annotations):
    one = pod()
    metadata = msgspec.structs.replace(one.metadata, resource_version=str(number), annotations=annotations)
    return msgspec.structs.replace(one, metadata=metadata)


def told(one, kind=ChangeKind.MODIFIED):
    return Change(kind, one)


def test_a_write_is_known_before_the_informer_tells_it():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.wrote(version(1), version(2, mark="ours"))
    assert pods.get(UID).metadata.annotations == {"mark": "ours"}


def test_a_write_never_hides_what_the_informer_has_told_since():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.take(told(version(3, mark="theirs")))
    pods.wrote(version(1), version(2, mark="ours"))
    assert pods.get(UID).metadata.annotations == {"mark": "theirs"}


def test_what_the_informer_tells_after_a_write_counts():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.wrote(version(1), version(2, mark="ours"))
    pods.take(told(version(3, mark="theirs")))
    assert pods.get(UID).metadata.annotations == {"mark": "theirs"}


def test_of_two_writes_the_first_one_told_late_does_not_undo_the_second():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.wrote(version(1), version(2, mark="first"))
    pods.wrote(version(2), version(3, mark="second"))
    assert pods.take(told(version(2, mark="first"))) == UID
    assert pods.get(UID).metadata.annotations == {"mark": "second"}
    pods.take(told(version(3, mark="second")))
    pods.take(told(version(4, mark="theirs")))
    assert pods.get(UID).metadata.annotations == {"mark": "theirs"}


def test_somebody_elses_write_between_ours_is_news():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.wrote(version(1), version(2, mark="first"))
    pods.wrote(version(2), version(3, mark="second"))
    pods.take(told(version(9, mark="theirs")))
    pods.take(told(version(2, mark="first")))  # a server that goes back is believed, as ever
    assert pods.get(UID).metadata.annotations == {"mark": "first"}


def test_a_write_does_not_bring_back_a_pod_that_is_gone():
    pods = Pods()
    pods.take(told(version(1), ChangeKind.ADDED))
    pods.take(told(version(2), ChangeKind.DELETED))
    pods.wrote(version(1), version(2, mark="ours"))
    assert pods.get(UID) is None
