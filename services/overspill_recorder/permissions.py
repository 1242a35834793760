"""What the recorder may do in a cluster: nothing, the stream is all it reads."""

from typing import Final

from overspill_kube.grants import Grant

PERMISSIONS: Final[tuple[Grant, ...]] = ()
