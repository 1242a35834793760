"""What a service may do in a cluster: rules, and where they hold.

Each service declares its grants beside its code, from the rules of the effects and kinds it uses; the deployed roles
are compared with them, name by name. This module must not know any service.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from overspill_events.names import SYSTEM_NAMESPACE
from overspill_kube import lease
from overspill_kube.rules import Rule


class Grant(Struct, frozen=True, kw_only=True):
    """A rule in the whole cluster, or in one `namespace`; for all objects, or for those of `names` only."""

    rule: Rule
    namespace: str = ""
    names: tuple[str, ...] = ()


class Permission(Struct, frozen=True, kw_only=True, order=True):
    """One verb on one resource: what grants and roles are compared by. Empty `namespace`: everywhere; `name`: all."""

    namespace: str
    group: str
    resource: str
    name: str
    verb: str


def everywhere(*rules: Rule) -> tuple[Grant, ...]:
    """These rules in the whole cluster."""
    return tuple(Grant(rule=rule) for rule in rules)


def within(namespace: str, *rules: Rule, names: tuple[str, ...] = ()) -> tuple[Grant, ...]:
    """These rules in one namespace."""
    return tuple(Grant(rule=rule, namespace=namespace, names=names) for rule in rules)


def leadership(*names: str) -> tuple[Grant, ...]:
    """What `run_as_leader` needs for leases of these names (none: of any name), in the system namespace.

    A create has no name that RBAC could look at.
    """
    grants: list[Grant] = []
    for rule in lease.RULES:
        named = Rule(rule.group, rule.resource, tuple(verb for verb in rule.verbs if verb != "create"))
        grants += within(SYSTEM_NAMESPACE, named, names=names)
        if "create" in rule.verbs:
            grants += within(SYSTEM_NAMESPACE, Rule(rule.group, rule.resource, ("create",)))
    return tuple(grants)


def permissions(grants: Iterable[Grant]) -> frozenset[Permission]:
    """The grants verb by verb; one that holds everywhere swallows the same one in a namespace or for a name."""
    found = set(_expanded(grants))
    wide = {(one.group, one.resource, one.verb) for one in found if not one.namespace and not one.name}
    return frozenset(
        one for one in found if (not one.namespace and not one.name) or (one.group, one.resource, one.verb) not in wide
    )


def _expanded(grants: Iterable[Grant]) -> Iterator[Permission]:
    for grant in grants:
        for name in grant.names or ("",):
            for verb in grant.rule.verbs:
                yield Permission(
                    namespace=grant.namespace,
                    group=grant.rule.group,
                    resource=grant.rule.resource,
                    name=name,
                    verb=verb,
                )
