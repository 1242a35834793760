"""The permission that an effect needs, declared beside the effect and compared with the deployed roles by a test."""

from msgspec import Struct


class Rule(Struct, frozen=True):
    """One RBAC rule: verbs on a resource (`pods/eviction` for a subresource) of an API group ("" is the core group)."""

    group: str
    resource: str
    verbs: tuple[str, ...]
