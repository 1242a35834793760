"""Rules of the kinds that make pods: Deployment, ReplicaSet and Job.

Pure; follows `pkg/apis/apps/validation` and `pkg/apis/batch/validation`.
"""

from overspill_lab.apiserver.documents import JsonObject
from overspill_lab.apiserver.errors import FieldError
from overspill_lab.apiserver.pod_rules import validate_spec
from overspill_lab.apiserver.selectors import selects

_COUNTS = ("replicas", "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
# What of a Job's template may change while it is suspended and has never started (KEP-2926).
_SUSPENDED_SPEC = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
_SUSPENDED_METADATA = ("labels", "annotations")


def validate_deployment(deployment: JsonObject) -> list[FieldError]:
    """Return what is wrong with a Deployment."""
    return [*_counts(deployment["spec"]), *_selected_template(deployment["spec"])]


def validate_replica_set(replica_set: JsonObject) -> list[FieldError]:
    """Return what is wrong with a ReplicaSet."""
    return [*_counts(replica_set["spec"]), *_selected_template(replica_set["spec"])]


def validate_job(job: JsonObject) -> list[FieldError]:
    """Return what is wrong with a Job."""
    spec = job["spec"]
    problems = [*_counts(spec), *_template(spec)]
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        path = "spec.template.spec.restartPolicy"
        if policy in (None, "Always"):
            problems.append(FieldError.required(path, 'valid values: "OnFailure", "Never"'))
        else:
            problems.append(FieldError.unsupported(path, policy, ("OnFailure", "Never")))
    return problems


def validate_deployment_update(deployment: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what may not be changed on a Deployment."""
    return [*validate_deployment(deployment), *_immutable(deployment, old, ("selector",))]


def validate_replica_set_update(replica_set: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what may not be changed on a ReplicaSet."""
    return [*validate_replica_set(replica_set), *_immutable(replica_set, old, ("selector",))]


def validate_job_update(job: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return what may not be changed on a Job: its template, unless suspended and never started, among others."""
    problems = [*_counts(job["spec"]), *_immutable(job, old, ("selector", "completionMode", "podFailurePolicy"))]
    if job["spec"].get("completionMode") != "Indexed":
        problems += _immutable(job, old, ("completions",))
    template, before = job["spec"]["template"], old["spec"]["template"]
    if old["spec"].get("suspend") and not (old.get("status") or {}).get("startTime"):
        template, before = _fixed_part(template), _fixed_part(before)
        if template["spec"] != before["spec"]:
            return [*problems, FieldError.invalid("spec.template.spec", template["spec"], "field is immutable")]
    if template != before:
        problems.append(FieldError.invalid("spec.template", template, "field is immutable"))
    return problems


def _fixed_part(template: JsonObject) -> JsonObject:
    """Return what of a template may not change even before the first start."""
    metadata = {key: value for key, value in template["metadata"].items() if key not in _SUSPENDED_METADATA}
    spec = {key: value for key, value in template["spec"].items() if key not in _SUSPENDED_SPEC}
    return {**template, "metadata": metadata, "spec": spec}


def _counts(spec: JsonObject) -> list[FieldError]:
    return [
        FieldError.invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0")
        for field in _COUNTS
        if field in spec and spec[field] < 0
    ]


def _template(spec: JsonObject) -> list[FieldError]:
    return validate_spec(spec["template"]["spec"], "spec.template.spec")


def _selected_template(spec: JsonObject) -> list[FieldError]:
    problems = _template(spec)
    selector = spec.get("selector")
    if selector is None:
        problems.append(FieldError.required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        problems.append(FieldError.invalid("spec.selector", selector, "empty selector is invalid for deployment"))
        return problems
    labels = spec["template"]["metadata"].get("labels") or {}
    if not selects(selector, labels):
        path = "spec.template.metadata.labels"
        problems.append(FieldError.invalid(path, labels, "`selector` does not match template `labels`"))
    if (policy := spec["template"]["spec"].get("restartPolicy")) != "Always":
        problems.append(FieldError.unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return problems


def _immutable(obj: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> list[FieldError]:
    return [
        FieldError.invalid(f"spec.{field}", obj["spec"].get(field), "field is immutable")
        for field in fields
        if obj["spec"].get(field) != old["spec"].get(field)
    ]
