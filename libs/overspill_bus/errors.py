"""What callers of the bus may meet. This module must not know NATS."""


class BusUnavailable(Exception):  # noqa: N818 (a state of the world, agreed by name)
    """The stream did not answer in time.

    `maybe_stored`: the event may be in the stream, or will be once the bus is back. False: it is not and will not be.
    """

    def __init__(self, message: str, *, maybe_stored: bool = False) -> None:
        super().__init__(message)
        self.maybe_stored = maybe_stored


class BusClosed(Exception):  # noqa: N818
    """The connection ended for good (the server said so, or its URL is none); the process should end and start anew."""


class RetryLater(Exception):  # noqa: N818
    """Raised by a handler: not yet, deliver it again after `delay` seconds."""

    def __init__(self, delay: float, reason: str = "") -> None:
        super().__init__(reason or f"again in {delay} s")
        self.delay = delay


class Poison(Exception):  # noqa: N818
    """Raised by a handler: this message will never be handled; it goes to the dead letters with this reason."""


class ApiError(Exception):
    """JetStream refused a request. `code` is HTTP-like, `err_code` JetStream's own (0 where it gave none)."""

    def __init__(self, what: str, *, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{what}: {description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code


class NoResponders(BusUnavailable):
    """Nobody serves the subject: no such stream or consumer, or JetStream is not ready. Nothing was stored."""
