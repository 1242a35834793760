"""Just enough OpenAPI v3 for `kubectl create`, which will not send an object before it has seen that the server
validates fields. Pure. There are no schemas: `kubectl explain` says so.
"""

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.resources import GROUP_VERSIONS, RESOURCES, Resource

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
                "info": {"title": "Overspill's lab", "version": "v1"},
                "paths": {
                    _path(resource, root): {"patch": _patch(resource, version)}
                    for resource in RESOURCES
                    if resource.group == group and version in resource.versions
                },
                "components": {"schemas": {}},
            }
    return None


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _path(resource: Resource, root: str) -> str:
    namespace = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{root}/{namespace}{resource.plural}/{{name}}"


def _patch(resource: Resource, version: str) -> JsonObject:
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    return {"parameters": _PARAMETERS, "responses": {}, "x-kubernetes-group-version-kind": kind}
