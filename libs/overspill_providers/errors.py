"""What a provider can answer instead of success, sorted by what the caller may conclude.

The kind decides who is blamed: an offering (no capacity), the account (quota, credentials, payment), the request
(invalid, image) or nobody (rate limit, unknown). This module must not know any provider's wire format.
"""

from enum import StrEnum


class ErrorKind(StrEnum):
    """What a provider's refusal means for the caller."""

    NO_CAPACITY = "no-capacity"  # this offering cannot be placed now; another one may
    QUOTA = "quota"  # the account's own limit
    AUTH = "auth"
    PAYMENT = "payment"
    INVALID = "invalid"  # the request itself; the same request never succeeds
    IMAGE = "image"
    RATE_LIMITED = "rate-limited"
    UNKNOWN = "unknown"  # timeout, 5xx, garbage: it may or may not have happened


class ProviderError(Exception):
    """A classified failure of one call.

    UNKNOWN after a create means that an instance may exist: it must be looked for before anything is asked again.
    `retry_after` is in seconds, None when the provider does not say.
    """

    def __init__(self, kind: ErrorKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"
