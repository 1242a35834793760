"""What goes wrong between us and an API server beyond the refusals that callers are expected to handle.

Two kinds matter to a caller: `KubeUnavailable` (we do not know; try again later) and `KubeError` (the server understood
and said no in a way nobody planned for: a bug or a missing permission).
"""


class ConfigError(Exception):
    """The kubeconfig or the in-cluster credentials cannot be used; the message names the source and what is wrong."""


class KubeUnavailable(Exception):  # noqa: N818  it is a state of the world, not a mistake of ours
    """No answer, or none that can be relied on: network, timeout, 5xx, throttled read. Whether a write took effect is
    unknown.

    `retry_after` is the server's wish in seconds, when it told one.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class KubeError(Exception):
    """An answer that no caller is expected to handle. `status` is the HTTP status, or 0 for an unreadable answer."""

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class VersionGone(Exception):  # noqa: N818  a normal event in the life of a watch
    """The server no longer has the history since the version we asked for (410): list again."""
