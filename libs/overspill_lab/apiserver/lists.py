"""Lists: which version, which page, and the bytes of it.

Follows the table of resourceVersion semantics in the API concepts page. A page after the first shows the collection as
it was at the first one's version, as long as the store remembers it; then 410.
"""

import base64
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from overspill_lab.apiserver import errors
from overspill_lab.apiserver.documents import encode
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.store import Collection, Entry, Store
from overspill_lab.apiserver.targets import ListQuery, parse_version

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


class _Token(Struct, frozen=True):
    """What `continue` carries: the version of the first page and the last key it showed."""

    rv: int
    after: str


class Page(Struct, frozen=True):
    """The objects of one answer and the metadata of its list."""

    entries: list[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, str | int]:
        """Return the list's `metadata`."""
        result: dict[str, str | int] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            result["continue"] = self.continue_token
        if self.remaining is not None:
            result["remainingItemCount"] = self.remaining
        return result


def page(store: Store, collection: Collection, namespace: str, query: ListQuery) -> Page:
    """Return what a list shows. Raises 400, 422, 410 (version or token too old) and 504 (version from the future)."""
    if query.continue_token:
        token = _read_token(query)
        if token.rv < collection.forgotten:
            raise errors.expired(_CONTINUE_EXPIRED)
        revision, after = token.rv, token.after
        entries = collection.as_of(revision, namespace)
    else:
        revision, after = _revision(store, collection, query), ""
        entries = (
            collection.in_order(namespace) if revision == store.revision else collection.as_of(revision, namespace)
        )
    chosen = _chosen(entries, query, after)
    if not query.limit or len(chosen) <= query.limit:
        return Page(chosen, revision)
    shown = chosen[: query.limit]
    token_text = _write_token(_Token(revision, shown[-1].key))
    remaining = len(chosen) - query.limit if query.selection.is_everything else None
    return Page(shown, revision, token_text, remaining)


def _chosen(entries: Iterable[Entry], query: ListQuery, after: str) -> list[Entry]:
    if after:
        entries = (entry for entry in entries if entry.key > after)
    if query.selection.is_everything:
        return list(entries)
    matches = query.selection.matches
    return [entry for entry in entries if matches(entry.obj)]


def _revision(store: Store, collection: Collection, query: ListQuery) -> int:
    match = query.version_match
    if not query.resource_version:
        if match:
            raise _bad_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
        return store.revision
    asked = parse_version(query.resource_version)
    if match not in ("", "Exact", "NotOlderThan"):
        problem = FieldError.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
        raise errors.invalid_options("ListOptions", problem)
    if asked == 0:
        if match == "Exact":
            raise _bad_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        return store.revision
    if asked > store.revision:
        raise errors.version_too_large(asked, store.revision)
    if match == "Exact" or (query.limit and not match):
        if asked < collection.forgotten:
            raise errors.expired(f"The resourceVersion for the provided list is too old: {asked}.")
        return asked
    return store.revision


def _bad_match(why: str) -> errors.ApiError:
    return errors.invalid_options("ListOptions", FieldError.forbidden("resourceVersionMatch", why))


def list_body(shown: Page, list_kind: str, api_version: str, item_prefix: bytes | None) -> bytes:
    """Frame a page as JSON; built-in kinds list their items without apiVersion and kind, as the real server does."""
    head = f'{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":'.encode()
    if item_prefix is None:
        items = b",".join([entry.body for entry in shown.entries])
    else:
        items = b",".join([entry.typed(item_prefix) for entry in shown.entries])
    return head + encode(shown.metadata()) + b',"items":[' + items + b"]}"


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _read_token(query: ListQuery) -> _Token:
    if query.resource_version not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    text = query.continue_token
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, msgspec.DecodeError) as problem:
        raise errors.bad_request(f"continue key is not valid: {text}") from problem
