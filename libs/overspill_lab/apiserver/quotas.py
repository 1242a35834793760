"""Keeping ResourceQuotas: what each namespace uses, who is let in, and the status that says so.

Only namespaces that have a quota are counted. The status follows a moment later, as the quota controller's would; what
is let in is judged by the count itself.
"""

import asyncio
from decimal import Decimal

from overspill_capacity.requests import Amounts
from overspill_lab.apiserver import errors, quota_rules
from overspill_lab.apiserver.documents import JsonObject, decode
from overspill_lab.apiserver.quantities import written
from overspill_lab.apiserver.resources import PODS, RESOURCE_QUOTAS
from overspill_lab.apiserver.store import Change, Entry, Store


class QuotaBook:
    """Follows pods and quotas; one per store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._charges: dict[str, dict[str, Amounts]] = {}
        self._dirty: set[str] = set()
        store.collection(PODS).listeners.add(self._pod_changed)
        store.collection(RESOURCE_QUOTAS).listeners.add(self._quota_changed)

    def admit(self, pod: JsonObject) -> None:
        """Raise 403 if a quota of the pod's namespace has no room for it."""
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        if namespace not in self._charges:
            return
        used = self._used(namespace)
        for quota in self._quotas(namespace):
            if why := quota_rules.refusal(quota.name, quota.obj["spec"].get("hard") or {}, used, pod):
                raise errors.forbidden(PODS, metadata["name"], why)

    def _pod_changed(self, change: Change) -> None:
        namespace, key = change.entry.namespace, change.entry.key
        charged = self._charges.get(namespace)
        if charged is None:
            return
        charged.pop(key, None)
        if change.kind != "DELETED":
            charged[key] = quota_rules.charges(change.entry.obj)
        self._settle_soon(namespace)

    def _quota_changed(self, change: Change) -> None:
        namespace = change.entry.namespace
        if not self._quotas(namespace):
            self._charges.pop(namespace, None)
            return
        if namespace not in self._charges:
            pods = self._store.collection(PODS).in_order(namespace)
            self._charges[namespace] = {entry.key: quota_rules.charges(entry.obj) for entry in pods}
        self._settle_soon(namespace)

    def _settle_soon(self, namespace: str) -> None:
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._settle)
        self._dirty.add(namespace)

    def _settle(self) -> None:
        namespaces, self._dirty = self._dirty, set()
        for namespace in namespaces:
            used = self._used(namespace)
            for quota in self._quotas(namespace):
                hard = quota.obj["spec"].get("hard") or {}
                counted = {name: written(used.get(name, Decimal(0))) for name in hard}
                status = {"hard": hard, "used": counted}
                if quota.obj.get("status") != status:
                    self._store.put(RESOURCE_QUOTAS, quota.key, {**decode(quota.body), "status": status})

    def _quotas(self, namespace: str) -> list[Entry]:
        return list(self._store.collection(RESOURCE_QUOTAS).in_order(namespace))

    def _used(self, namespace: str) -> Amounts:
        total: Amounts = {}
        for charged in self._charges.get(namespace, {}).values():
            for name, amount in charged.items():
                total[name] = total.get(name, Decimal(0)) + amount
        return total
