"""Every knob of the sampler: `OVERSPILL_SAMPLER_<NAME>`, seconds."""

from typing import Annotated

from msgspec import Meta

from overspill_events.names import GPU_RESOURCE
from overspill_runtime.addresses import HttpUrl
from overspill_runtime.settings import SECRET, CommonSettings, FieldError

Seconds = Annotated[float, Meta(gt=0)]


class Settings(CommonSettings, frozen=True, kw_only=True):
    """Without `prometheus_url` and `query` only the cluster is counted."""

    pool: Annotated[str, Meta(min_length=1)] = "default"  # name of what is sampled
    resource: Annotated[str, Meta(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] = GPU_RESOURCE
    interval: Seconds = 15.0
    prometheus_url: HttpUrl | None = None
    prometheus_token: Annotated[str, SECRET] | None = None
    query: str | None = None  # PromQL that gives one number: free GPUs at home
    query_timeout: Seconds = 10.0
    # Silence of a watch, or age of a value. Longer than the minute between two bookmarks of a quiet watch.
    stale_after: Seconds = 150.0

    def __post_init__(self) -> None:
        if (self.prometheus_url is None) != (self.query is None):
            field = "query" if self.query is None else "prometheus_url"
            raise FieldError(field, None, "prometheus_url and query are set together, or neither")
