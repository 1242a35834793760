"""Times as Go structs tell them back, in UTC: `metav1.Time` in whole seconds, `metav1.MicroTime` with six decimals.

Pure. Custom resources keep the text they were given: their times are strings with a format.
"""

import re
from datetime import UTC, datetime

from overspill_lab.apiserver.documents import JsonObject, timestamp

_TIMES = frozenset(
    {
        "lastTransitionTime", "lastProbeTime", "lastHeartbeatTime", "lastUpdateTime", "startTime", "completionTime",
        "startedAt", "finishedAt", "firstTimestamp", "lastTimestamp", "timeAdded",
    }
)  # fmt: skip
_MICRO_TIMES = frozenset({"acquireTime", "renewTime", "eventTime", "lastObservedTime"})
_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)")
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def normalise_times(obj: JsonObject) -> None:
    """Rewrite every known time in place as the server would tell it back; raises ValueError that names the member."""
    for key, value in obj.items():
        if isinstance(value, dict):
            normalise_times(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    normalise_times(item)
        elif key in _TIMES:
            obj[key] = _time(key, value)
        elif key in _MICRO_TIMES:
            obj[key] = _micro_time(key, value)


def _time(key: str, value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{key}: {value!r} is not a string in RFC 3339 form")  # noqa: TRY004  decoding, not typing
    if _SECONDS.fullmatch(value):
        return value
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"{key}: {value!r} has no time zone")
    return timestamp(moment)


def _micro_time(key: str, value: object) -> object:
    if not isinstance(value, str) or not _MICRO.fullmatch(value):
        raise ValueError(f'{key}: {value!r} cannot be parsed as "2006-01-02T15:04:05.000000Z07:00"')
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
