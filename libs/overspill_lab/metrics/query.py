"""The part of Prometheus' HTTP API that the lab has: instant queries, and only the ones listed here. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from overspill_lab.metrics.measure import Measured

FREE_GPUS: Final = "sum(overspill_lab_home_gpus_allocatable) - sum(overspill_lab_home_gpus_requested)"
FREE_GPUS_BESIDES_LOWEST: Final = (
    'sum(overspill_lab_home_gpus_allocatable) - sum(overspill_lab_home_gpus_requested{class!="lowest"})'
)
QUERIES: Final[Mapping[str, Callable[[Measured], int]]] = {
    FREE_GPUS: lambda measured: measured.allocatable - measured.requested(with_lowest=True),
    FREE_GPUS_BESIDES_LOWEST: lambda measured: measured.allocatable - measured.requested(with_lowest=False),
}
NOW_WITHIN_S: Final = 60.0  # there is no history: a query for another time is refused


class Answer(Struct, frozen=True, kw_only=True):
    """HTTP status and JSON body."""

    status: int
    body: dict[str, Any]


def answer(query: str | None, time: str | None, measured: Measured | None, *, now: float) -> Answer:
    """What Prometheus would say; `now` in Unix seconds. Without measurements: an empty result, as without a scrape."""
    evaluate = QUERIES.get(_plain(query or ""), None)
    if evaluate is None:
        known = "; ".join(QUERIES)
        return _bad(f'invalid parameter "query": the lab answers only these queries: {known}')
    asked = now
    if time is not None:
        try:
            asked = float(time)
        except ValueError:
            return _bad(f'invalid parameter "time": cannot parse "{time}": the lab takes Unix seconds')
        if not abs(asked - now) <= NOW_WITHIN_S:
            return _bad(f'invalid parameter "time": the lab keeps no history; it is {now:.3f} now')
    home_is_known = measured is not None and measured.nodes
    result = [{"metric": {}, "value": [asked, str(evaluate(measured))]}] if measured and home_is_known else []
    return Answer(status=200, body={"status": "success", "data": {"resultType": "vector", "result": result}})


def _bad(error: str) -> Answer:
    return Answer(status=400, body={"status": "error", "errorType": "bad_data", "error": error})


def _plain(query: str) -> str:
    return " ".join(query.split())
