"""Definitions of kinds: that there is one, and whose. What a kind looks like is not ours to read."""

from overspill_objects.meta import ObjectMeta
from overspill_objects.view import View


class CustomResourceDefinition(View, frozen=True, kw_only=True):
    """A kind that a cluster was taught."""

    metadata: ObjectMeta = ObjectMeta()
