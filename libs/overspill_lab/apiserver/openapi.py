"""Just enough OpenAPI for kubectl, which will not send an object before it has seen that the server validates fields
(v3), nor the items of a List before it has read the schemas (v2). Pure. There are no schemas: `kubectl explain` says
so, and kubectl then checks nothing itself.
"""

from typing import Final

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.resources import GROUP_VERSIONS, RESOURCES, Resource

V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"  # as it is asked for
V2_CONTENT: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # as it is answered: @ is no MIME
_TITLE: Final = "Overspill's lab"
_VERSION: Final = "v1"
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index() -> JsonObject:
    """Return `/openapi/v3`: where each group and version is described."""
    paths = {
        _root(group, version): {"serverRelativeURL": f"/openapi/v3/{_root(group, version)}"}
        for group, version in GROUP_VERSIONS
    }
    return {"paths": paths}


def document(root: str) -> JsonObject | None:
    """Return the description of one group and version, such as `apis/apps/v1`; None for one that is not served."""
    for group, version in GROUP_VERSIONS:
        if _root(group, version) == root:
            return {
                "openapi": "3.0.0",
                "info": {"title": _TITLE, "version": _VERSION},
                "paths": {
                    _path(resource, root): {"patch": _patch(resource, version)}
                    for resource in RESOURCES
                    if resource.group == group and version in resource.versions
                },
                "components": {"schemas": {}},
            }
    return None


def swagger() -> JsonObject:
    """Return `/openapi/v2`: a document without a schema."""
    return {"swagger": "2.0", "info": {"title": _TITLE, "version": _VERSION}, "paths": {}, "definitions": {}}


def swagger_protobuf() -> bytes:
    """Return the same in the only form that kubectl reads: gnostic's Document {swagger = 1, info = 2 {title = 1,
    version = 2}}.
    """
    return _member(1, b"2.0") + _member(2, _member(1, _TITLE.encode()) + _member(2, _VERSION.encode()))


def _member(number: int, value: bytes) -> bytes:
    """A string or message of less than 128 bytes on protobuf's wire."""
    return bytes([number << 3 | 2, len(value)]) + value


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _path(resource: Resource, root: str) -> str:
    namespace = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{root}/{namespace}{resource.plural}/{{name}}"


def _patch(resource: Resource, version: str) -> JsonObject:
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    return {"parameters": _PARAMETERS, "responses": {}, "x-kubernetes-group-version-kind": kind}
