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
        """The query's value now, or why there is none; samples older than `stale_after` seconds count as absent.

        The timestamp in an answer is the moment of the evaluation, however old the samples are: only Prometheus knows
        their age, so it is told what is too old. Its own limit is five minutes.
        """
        # Seconds as plain numbers: Prometheus' durations with a unit have no fractions.
        form = {"query": self._query, "timeout": str(self._timeout), "lookback_delta": str(stale_after)}
        try:
            async with self._session.post(
                self._url, data=form, headers=self._headers, timeout=aiohttp.ClientTimeout(total=self._timeout)
            ) as answer:
                body = await _read(answer.content)
        except TimeoutError:
            return self._unreachable(f"no answer in {self._timeout:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return self._unreachable(f"{type(error).__name__}: {error}")
        if body is None:
            detail = f"HTTP {answer.status}: an answer of more than {LARGEST_ANSWER} bytes"
            return unknown(Source.QUERY, UnknownCause.REFUSED, now=self._clock.now(), detail=detail)
        return read_answer(answer.status, body, now=self._clock.now(), stale_after=stale_after)

    def _unreachable(self, detail: str) -> Reading:
        return unknown(Source.QUERY, UnknownCause.UNREACHABLE, now=self._clock.now(), detail=detail)


async def _read(content: aiohttp.StreamReader) -> bytes | None:
    """The whole body, which comes in pieces; None when it is too large to be one number."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > LARGEST_ANSWER:
            return None
    return bytes(body)
