"""Asks Prometheus, with a time limit. What the answer means is `answer`'s matter."""

from typing import Final

import aiohttp

from overspill_events.catalog import Reading
from overspill_events.reasons import Source, UnknownCause
from overspill_runtime.clock import Clock
from overspill_sampler.answer import read_answer
from overspill_sampler.policy import unknown

LARGEST_ANSWER: Final = 1_000_000  # bytes; one number needs a few hundred


class Prometheus:
    """One query at one server; uses the given session and never raises for what the server does."""

    def __init__(
        self, session: aiohttp.ClientSession, *, url: str, query: str, token: str | None, timeout: float, clock: Clock
    ) -> None:
        self._session = session
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._query = query
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._clock = clock

    async def read(self, *, stale_after: float) -> Reading:
        """The query's value now, or why there is none."""
        form = {"query": self._query, "timeout": f"{self._timeout:g}s"}
        try:
            async with self._session.post(
                self._url, data=form, headers=self._headers, timeout=aiohttp.ClientTimeout(total=self._timeout)
            ) as answer:
                body = await answer.content.read(LARGEST_ANSWER)
        except TimeoutError:
            return self._unreachable(f"no answer in {self._timeout:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return self._unreachable(f"{type(error).__name__}: {error}")
        return read_answer(answer.status, body, now=self._clock.now(), stale_after=stale_after)

    def _unreachable(self, detail: str) -> Reading:
        return unknown(Source.QUERY, UnknownCause.UNREACHABLE, now=self._clock.now(), detail=detail)
