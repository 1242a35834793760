"""What can be wrong with an event. This module must not know how events travel."""


class EventError(ValueError):
    """An event that cannot be written or read; the message names the field or header and what is accepted."""
