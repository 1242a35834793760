"""Every knob of the bridge. Durations are seconds, prices dollars per instance hour."""

from typing import Annotated

from msgspec import Meta

from overspill_events.names import GPU_RESOURCE
from overspill_providers.registry import build_providers
from overspill_runtime.settings import SECRET, CommonSettings, FieldError

Seconds = Annotated[float, Meta(gt=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]


class Settings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one virtual node; a second node is a second bridge."""

    node_name: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?$")] = "overspill"
    providers: Annotated[str, SECRET]  # name=http://host:port?token=…, several separated by commas
    provider_timeout: Seconds = 10.0  # of one call
    resource: str = GPU_RESOURCE
    max_external_gpus: AtLeastOne = 64  # capacity of the node, and the bridge's own ceiling
    cpus_per_gpu: AtLeastOne = 32  # the node's other capacity, so that GPUs are what runs out first
    memory_gib_per_gpu: AtLeastOne = 256

    poll_interval: Seconds = 5.0  # one list and one look at the offerings per provider
    sample_silence: Seconds = 30.0  # a provider is reported at least this often, changed or not
    resync_interval: Seconds = 60.0  # every pod is looked at this often, changed or not
    list_lag: Annotated[float, Meta(ge=0)] = 30.0  # how long a list may lack a new instance; a new leader waits for it
    start_deadline: Seconds = 900.0  # to running, from creation or the leader's first sight; then another offering
    offering_cooldown: Seconds = 60.0  # an offering, or an account, that refused is left alone this long
    retry_min: Seconds = 1.0  # a pod without an instance is tried again after this, doubling …
    retry_max: Seconds = 60.0  # … up to this
    terminate_again: Seconds = 60.0  # an instance still there this long after its termination is terminated again

    gc_interval: Seconds = 30.0
    gc_grace: Annotated[float, Meta(ge=0)] = 120.0  # an instance younger than this is no orphan
    gc_max_per_pass: AtLeastOne = 10

    create_concurrency: AtLeastOne = 16  # per provider
    delete_concurrency: AtLeastOne = 16  # per provider
    status_concurrency: AtLeastOne = 16  # calls to the API server

    outage_tolerance: AtLeastOne = 3600  # tolerationSeconds of spilled pods for a node that is not ready or unreachable
    pod_deletion_cost: int = -100  # scaling down stops the paid replicas first
    node_status_interval: Seconds = 60.0
    lease_duration: AtLeastOne = 40  # of the node's own lease; renewed four times as often

    def __post_init__(self) -> None:
        if self.retry_max < self.retry_min:
            raise FieldError("retry_max", self.retry_max, f"at least retry_min ({self.retry_min})")
        if self.sample_silence < self.poll_interval:
            raise FieldError("sample_silence", self.sample_silence, f"at least poll_interval ({self.poll_interval})")
        try:
            build_providers(self.providers)  # opens nothing
        except ValueError as error:
            raise FieldError("providers", "(a secret)", str(error)) from error
