"""From a request's path and query to what it is about. Pure; raises 404 and 400 in the words of a Status."""

from collections.abc import Mapping

from msgspec import Struct

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.resources import BY_PATH, Resource
from overspill_lab.apiserver.selectors import Selection, parse_fields, parse_labels

_OF_A_NAMESPACE = ("status", "finalize")


class Target(Struct, frozen=True):
    """A collection (no name), an object, or a subresource of one."""

    resource: Resource
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """Return the apiVersion that this request speaks."""
        return self.resource.api_version(self.version)


class ListQuery(Struct, frozen=True):
    """The parameters of a list, watch or deletecollection."""

    selection: Selection
    watch: bool
    limit: int
    continue_token: str
    resource_version: str
    version_match: str
    timeout_seconds: float | None
    bookmarks: bool
    send_initial_events: bool


def parse_target(path: str) -> Target:
    """Read the path of an API request; raises 404 for anything the lab does not serve."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", *parts[1:2], parts[2:]
    else:
        group, version, rest = parts[1], *parts[2:3], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in _OF_A_NAMESPACE):  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):  # noqa: PLR2004
        raise errors.no_such_path(path)
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.namespaced and not namespace:
        raise errors.no_such_path(path)
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path(path)
    return Target(resource, version, namespace, name, subresource)


def parse_list_query(resource: Resource, query: Mapping[str, str]) -> ListQuery:
    """Read the query of a collection request; raises 400 for what cannot be understood."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    timeout = number(query, "timeoutSeconds")
    return ListQuery(
        selection=Selection(parse_labels(labels), parse_fields(fields, resource)),
        watch=_flag(query, "watch"),
        limit=number(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        version_match=query.get("resourceVersionMatch", ""),
        timeout_seconds=timeout,
        bookmarks=_flag(query, "allowWatchBookmarks"),
        send_initial_events=_flag(query, "sendInitialEvents"),
    )


def parse_version(text: str) -> int:
    """Read a resourceVersion that the server has given out; raises 400 for anything else."""
    if not text.isascii() or not text.isdigit():
        words = "is not a number that this server has given out"
        raise errors.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": {words}')
    return int(text)


def dry_run(query: Mapping[str, str], options: str) -> bool:
    """Tell whether nothing is to be stored; raises 422 (on CreateOptions or the like) for another kind of dry run."""
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise errors.invalid_options(options, FieldError.unsupported("dryRun", [value], ("All",)))
    return value == "All"


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name)
    return value is not None and value.lower() not in ("false", "0")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a numeric parameter, None without one; raises 400."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as problem:
        raise errors.bad_request(f"{name}: {text!r} is not a whole number") from problem


def is_api_path(path: str) -> bool:
    """Tell whether a path is about objects rather than discovery or health."""
    parts = path.strip("/").split("/")
    return (parts[0] == "api" and len(parts) > 2) or (parts[0] == "apis" and len(parts) > 3)  # noqa: PLR2004
