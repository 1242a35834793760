"""One consumer's messages, checked for completeness.

A message can get lost between server and process (a full buffer, a connection that breaks); the consumer's own numbers
tell. This module must not know what happens then, beyond saying so.
"""

from itertools import takewhile

from overspill_bus.jetstream import ConsumerInfo, JetStream
from overspill_bus.pulling import ConsumerLost, Pull
from overspill_bus.recorded import Delivery


class Session:
    """Messages in the consumer's order, from where `consumer` stood when the session was opened.

    `pending`: how many there were to come then.
    """

    def __init__(self, pull: Pull, jetstream: JetStream, *, stream: str, consumer: ConsumerInfo) -> None:
        self._pull = pull
        self._jetstream = jetstream
        self._stream = stream
        self._consumer = consumer.name
        self._seen = consumer.delivered.consumer_seq
        self._gap = False
        self.pending = consumer.num_pending

    async def next(self, limit: int) -> list[Delivery]:
        """The next messages, at most `limit`; an empty list after a quiet while.

        Raises ConsumerLost when a message is missing, ApiError and BusUnavailable when that cannot be found out.
        """
        deliveries = [] if self._gap else await self._pull.next(limit)
        whole = list(takewhile(self._is_next, deliveries))
        self._gap = self._gap or len(whole) < len(deliveries)
        if whole:
            return whole
        if not self._gap:  # nothing came: was something sent?
            info = await self._jetstream.consumer_info(self._stream, self._consumer)
            self._gap = info.delivered.consumer_seq > self._seen
        if self._gap:
            raise ConsumerLost(f"message {self._seen + 1} of {self._consumer} got lost on the way")
        return []

    def _is_next(self, delivery: Delivery) -> bool:
        if delivery.consumer_sequence != self._seen + 1:
            return False
        self._seen += 1
        return True
