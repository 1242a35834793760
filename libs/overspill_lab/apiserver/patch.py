"""The patch kinds: JSON Patch, merge patch and strategic merge patch over plain dicts.

Pure, apart from reading bytes. Server-side apply is refused in words: it needs field ownership, which the lab does
not keep. Merge keys are those of the Kubernetes types for the lists Overspill and its users touch; every other list is
atomic, `tolerations` and `taints` among them, as on a real server.
"""

from collections.abc import Callable
from typing import Any

import jsonpatch
import msgspec

from overspill_lab.apiserver.documents import JsonObject, decode
from overspill_lab.apiserver.errors import bad_request, unprocessable_patch, unsupported_media_type
from overspill_lab.apiserver.resources import Resource

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_APPLY = ("application/apply-patch+yaml", "application/apply-patch+cbor")

_MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name",
    "volumes": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "conditions": "type",
    "schedulingGates": "name", "ownerReferences": "uid", "imagePullSecrets": "name", "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey", "resourceClaims": "name", "addresses": "type", "podIPs": "ip",
    "hostIPs": "ip", "secrets": "name",
}  # fmt: skip
_PRIMITIVE_MERGES = frozenset({"finalizers", "podCIDRs"})
_SET_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_RETAIN_KEYS = "$retainKeys"


def patcher(content_type: str, body: bytes, resource: Resource) -> Callable[[JsonObject], JsonObject]:
    """Return the function that applies this patch to an object.

    Raises a 415 for a content type the resource does not take and a 400 for a body that is no patch of that type; the
    function raises a 422 when a JSON Patch does not apply.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _APPLY:
        raise unsupported_media_type("the lab does not do server-side apply; send " + _accepted(resource))
    if kind not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH) or (resource.custom and kind == STRATEGIC_PATCH):
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {_accepted(resource)}"
        )
    try:
        document = decode(body)
    except msgspec.DecodeError as problem:
        raise bad_request(f"the patch is not JSON: {problem}") from problem
    if kind == JSON_PATCH:
        return _json_patcher(document)
    if not isinstance(document, dict):
        raise bad_request(f"a {kind} must be an object, not {type(document).__name__}")
    if kind == MERGE_PATCH:
        return lambda obj: merge(obj, document)
    return lambda obj: strategic_merge(obj, document)


def _accepted(resource: Resource) -> str:
    return ", ".join((JSON_PATCH, MERGE_PATCH) if resource.custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))


def _json_patcher(document: Any) -> Callable[[JsonObject], JsonObject]:
    if not isinstance(document, list):
        raise bad_request(f"a {JSON_PATCH} must be a list of operations, not {type(document).__name__}")
    try:
        steps = [(operation, jsonpatch.JsonPatch([operation])) for operation in document]
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as problem:
        raise unprocessable_patch() from problem

    def apply(obj: JsonObject) -> JsonObject:
        try:
            for operation, step in steps:
                if not _tests_absence(operation, obj):
                    obj = step.apply(obj, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as problem:
            raise unprocessable_patch() from problem
        if not isinstance(obj, dict):
            raise unprocessable_patch()
        return obj

    return apply


def _tests_absence(operation: JsonObject, obj: JsonObject) -> bool:
    """Tell whether this is a `test` for null where nothing is: it holds on a real server, the RFC leaves it open."""
    if operation["op"] != "test" or operation.get("value", "") is not None:
        return False
    return jsonpatch.JsonPointer(operation["path"]).resolve(obj, None) is None


def merge(target: JsonObject, patch: JsonObject) -> JsonObject:
    """Apply an RFC 7386 merge patch; lists are replaced whole, null removes."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            current = result.get(key)
            result[key] = merge(current if isinstance(current, dict) else {}, value)
        else:
            result[key] = value
    return result


def strategic_merge(target: JsonObject, patch: JsonObject, *, at: tuple[str, ...] = ()) -> JsonObject:
    """Apply a strategic merge patch; `at` is the path of `target`, which decides what some lists merge by."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = _prepared(target, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            current = result.get(key)
            result[key] = strategic_merge(current if isinstance(current, dict) else {}, value, at=(*at, key))
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key) or [], value, key, at)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith(_SET_ORDER):
            _reorder(result, key.removeprefix(_SET_ORDER), order, at)
    return result


def _prepared(target: JsonObject, patch: JsonObject) -> JsonObject:
    """Return a copy of the target with what the patch's directives take away gone."""
    result = {key: value for key, value in target.items() if key in patch.get(_RETAIN_KEYS, target)}
    for key, gone in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            field = key.removeprefix(_DELETE_PRIMITIVES)
            result[field] = [item for item in result.get(field) or [] if item not in gone]
    return result


def _merge_key(field: str, at: tuple[str, ...]) -> str | None:
    if field == "ports":
        return "port" if at == ("spec",) else "containerPort"
    return _MERGE_KEYS.get(field)


def _merge_list(current: list[Any], patch: list[Any], field: str, at: tuple[str, ...]) -> list[Any]:
    if field in _PRIMITIVE_MERGES:
        return current + [item for item in patch if item not in current]
    merge_key = _merge_key(field, at)
    if merge_key is None:
        return patch
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {merge_key}")
        position = next((i for i, old in enumerate(result) if old.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            if position is not None:
                del result[position]
        elif position is None:
            result.append(strategic_merge({}, item, at=(*at, field)))
        else:
            result[position] = strategic_merge(result[position], item, at=(*at, field))
    return result


def _reorder(result: JsonObject, field: str, order: list[Any], at: tuple[str, ...]) -> None:
    items = result.get(field)
    if not isinstance(items, list):
        return
    merge_key = _merge_key(field, at)
    wanted = [entry.get(merge_key) if isinstance(entry, dict) else entry for entry in order]

    def rank(item: Any) -> int:
        identity = item.get(merge_key) if isinstance(item, dict) else item
        return wanted.index(identity) if identity in wanted else len(wanted)

    result[field] = sorted(items, key=rank)
