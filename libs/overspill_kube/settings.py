"""What a process may say about its way to the API server. It must not know where the values come from."""

from msgspec import Struct


class WatchTiming(Struct, frozen=True, kw_only=True):
    """How long a watch lasts and how soon its silence is noticed, in seconds.

    A server sends a bookmark about once a minute, so more silence than `silence_seconds` means a dead connection, and
    no contact for `stale_seconds` means that the cache may be wrong. A watch is renewed within five minutes because it
    keeps the token that it began with.
    """

    server_seconds: tuple[float, float] = (240.0, 300.0)  # asked of the server, random in between
    silence_seconds: float = 100.0
    stale_seconds: float = 200.0
    backoff_seconds: tuple[float, float] = (0.2, 30.0)  # first and longest pause after a failure

    @classmethod
    def short(cls, seconds: float) -> "WatchTiming":
        """For short-lived setups: watches are renewed after about `seconds` (>= 1), and silence is noticed as soon."""
        if seconds < 1:
            raise ValueError(f"a watch of {seconds} s is too short: at least 1")
        return cls(
            server_seconds=(0.8 * seconds, seconds),
            silence_seconds=seconds + 2,
            stale_seconds=2 * seconds + 5,
            backoff_seconds=(0.1, max(1.0, seconds / 2)),
        )


class KubeSettings(Struct, frozen=True, kw_only=True):
    """Without a `kubeconfig`: $KUBECONFIG, then ~/.kube/config, then in-cluster credentials. `user_agent` also is the
    field manager of what is written.
    """

    kubeconfig: str | None = None
    context: str | None = None
    user_agent: str = "overspill"
    request_seconds: float = 30.0
    watch: WatchTiming = WatchTiming()
