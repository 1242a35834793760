"""What the server says it serves: versions, groups and resources, built from the one table of kinds. Pure."""

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.resources import GROUP_VERSIONS, NAMESPACES, RESOURCES, Resource

KUBERNETES_VERSION = "v1.37.2"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def version() -> JsonObject:
    """Return `/version`: the release whose behaviour the lab follows, marked as the lab."""
    return {
        "major": "1",
        "minor": "37",
        "gitVersion": f"{KUBERNETES_VERSION}+overspill-lab",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "python",
    }


def core_versions(address: str) -> JsonObject:
    """Return `/api`."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def groups() -> JsonObject:
    """Return `/apis`."""
    names = dict.fromkeys(group for group, _ in GROUP_VERSIONS if group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def group(name: str) -> JsonObject | None:
    """Return `/apis/<group>`, or None for a group that is not served."""
    if not any(served == name for served, _ in GROUP_VERSIONS):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{served}/{version}", "version": version}
        for served, version in GROUP_VERSIONS
        if served == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resources(group_name: str, version_name: str) -> JsonObject | None:
    """Return `/api/v1` or `/apis/<group>/<version>`, or None for one that is not served."""
    if (group_name, version_name) not in GROUP_VERSIONS:
        return None
    listed = [
        item
        for resource in RESOURCES
        if resource.group == group_name and version_name in resource.versions
        for item in (_resource(resource), *(_subresource(resource, name) for name in resource.subresources))
    ]
    group_version = f"{group_name}/{version_name}" if group_name else version_name
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _resource(resource: Resource) -> JsonObject:
    described: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": [verb for verb in _VERBS if resource is not NAMESPACES or verb != "deletecollection"],
    }
    if resource.short_names:
        described["shortNames"] = list(resource.short_names)
    if resource.categories:
        described["categories"] = list(resource.categories)
    return described


def _subresource(resource: Resource, name: str) -> JsonObject:
    described: JsonObject = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name == "scale":
        described |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    elif name == "eviction":
        described |= {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
    elif name == "binding":
        described |= {"kind": "Binding", "verbs": ["create"]}
    return described
