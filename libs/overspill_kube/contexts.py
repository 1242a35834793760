"""Which cluster a command is about to change, by the name that people gave it.

A kubeconfig's current context is easily not the one that somebody had in mind. Commands that change a cluster therefore
go on only in a context that was named to them, or whose name says that it is there for this.
"""

from collections.abc import Sequence
from typing import Final

from overspill_kube import library
from overspill_kube.errors import ConfigError
from overspill_kube.settings import KubeSettings
from overspill_kube.transport import kubeconfig_of

MADE_FOR_THIS: Final = ("kind-", "overspill-")
IN_CLUSTER: Final = "in-cluster"


class ContextRefused(Exception):  # noqa: N818  nothing went wrong
    """The context was not named to the command; the message says which it is."""

    def __init__(self, context: str) -> None:
        super().__init__(
            f"refusing to change the cluster of context {context!r}: its name does not begin with"
            f" {' or '.join(MADE_FOR_THIS)}; type --allow-context {context} if you mean it"
        )
        self.context = context


def context_of(settings: KubeSettings) -> str:
    """The name of the context that a client with these settings uses; `in-cluster` where there is no kubeconfig.

    Raises ConfigError for a kubeconfig that cannot be used.
    """
    source = kubeconfig_of(settings)
    if source is None:
        return IN_CLUSTER
    if settings.context is not None:
        return settings.context
    try:
        _, current = library.config.kube_config.list_kube_config_contexts(source)
        return str(current["name"])
    except Exception as error:  # the library raises whatever it stumbled over
        raise ConfigError(f"kubeconfig {source}: {str(error) or type(error).__name__}") from error


def require_context(settings: KubeSettings, allowed: Sequence[str]) -> str:
    """The context's name, when it may be changed. Raises ContextRefused when not, ConfigError as `context_of`."""
    context = context_of(settings)
    if context not in allowed and not context.startswith(MADE_FOR_THIS):
        raise ContextRefused(context)
    return context
