"""What a pod must be to run as one container at a provider: the rules of docs/what-can-spill.md. Pure.

Each rule speaks before money is spent and names the field. What is silently left out instead is listed in the document
and nowhere else: the default service-account token, service links, probes, host scheduling hints.
"""

from collections.abc import Callable, Iterator

from overspill_bridge.wishes import secrets_may_leave
from overspill_objects.core import Container, Pod

TOKEN_VOLUME_PREFIX = "kube-api-access-"  # noqa: S105 -- the name the ServiceAccount admission plugin gives, not a secret

Rule = Callable[[Pod], Iterator[str]]


def unsupported(pod: Pod) -> tuple[str, ...]:
    """Every reason why this pod cannot leave the cluster, each beginning with the field; empty when it can."""
    return tuple(text for rule in RULES for text in rule(pod))


def token_volumes(pod: Pod) -> frozenset[str]:
    """The volumes that the cluster itself added for the service account's token; they stay at home."""
    return frozenset(
        str(volume["name"])
        for volume in pod.spec.volumes
        if str(volume.get("name", "")).startswith(TOKEN_VOLUME_PREFIX) and "projected" in volume
    )


def has_probes(pod: Pod) -> bool:
    """Whether the pod has probes, which nobody runs outside."""
    return any(
        container.liveness_probe or container.readiness_probe or container.startup_probe
        for container in pod.spec.containers
    )


def _one_container(pod: Pod) -> Iterator[str]:
    if len(pod.spec.containers) != 1:
        yield f"spec.containers: {len(pod.spec.containers)} containers; an instance runs exactly one"
    if pod.spec.init_containers:
        yield f"spec.initContainers: {len(pod.spec.init_containers)} init containers; an instance runs none"


def _no_host(pod: Pod) -> Iterator[str]:
    for field, value in (
        ("hostNetwork", pod.spec.host_network),
        ("hostPID", pod.spec.host_pid),
        ("hostIPC", pod.spec.host_ipc),
    ):
        if value:
            yield f"spec.{field}: there is no host of the cluster behind an instance"


def _volumes(pod: Pod) -> Iterator[str]:
    """Nothing but the cluster's own token volume: an instance has no volumes of the cluster."""
    token = token_volumes(pod)
    for index, volume in enumerate(pod.spec.volumes):
        name = str(volume.get("name", ""))
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if name not in token and kind != "emptyDir":
            yield f"spec.volumes[{index}] ({name}): {kind} cannot leave the cluster"


def _token(pod: Pod) -> Iterator[str]:
    """A pod that opted its secrets in expects its token; instances cannot be given files, so it is told."""
    if secrets_may_leave(pod) and token_volumes(pod):
        yield (
            "spec.automountServiceAccountToken: a provider's instance gets no files, so its token cannot go with it;"
            " set it to false"
        )


def _claims(pod: Pod) -> Iterator[str]:
    if pod.spec.resource_claims:
        yield "spec.resourceClaims: devices of the cluster cannot be claimed from outside"
    if pod.spec.image_pull_secrets:
        yield "spec.imagePullSecrets: credentials of a registry are not handed to providers; the image must be public"
    if pod.spec.runtime_class_name:
        yield f"spec.runtimeClassName: {pod.spec.runtime_class_name!r} is a class of this cluster's nodes"


def _container(pod: Pod) -> Iterator[str]:
    for container in pod.spec.containers[:1]:
        yield from _container_fields(container)


def _container_fields(container: Container) -> Iterator[str]:
    security = container.security_context or {}
    where = f"spec.containers[{container.name}]"
    if security.get("privileged"):
        yield f"{where}.securityContext.privileged: providers do not hand out their hosts"
    if (security.get("capabilities") or {}).get("add"):
        yield f"{where}.securityContext.capabilities.add: providers do not grant capabilities"
    if container.working_dir:
        yield f"{where}.workingDir: not supported; set it in the image"
    if container.lifecycle:
        yield f"{where}.lifecycle: hooks cannot be run in an instance"
    for port in container.ports:
        if port.host_port:
            yield f"{where}.ports[{port.container_port}].hostPort: there is no host of the cluster behind an instance"
    if not container.image:
        yield f"{where}.image: must not be empty"


RULES: tuple[Rule, ...] = (_one_container, _no_host, _volumes, _token, _claims, _container)
