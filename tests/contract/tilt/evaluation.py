"""The Tiltfile evaluated without Tilt: its builtins are stand-ins with Tilt's own parameters that write down every call.

A parameter that Tilt does not know, or one it needs and does not get, fails here as it fails there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import starlark
import yaml

ROOT = Path(__file__).parents[3]
TILTFILE = ROOT / "Tiltfile"
EXTENSIONS = {"ext://restart_process": {"docker_build_with_restart"}}

# What Tilt offers as an object with functions, written in its own language.
STRUCTS = "config = struct(define_string_list=define_string_list, parse=parse, set_enabled_resources=set_enabled)"


class TiltError(Exception):
    """The Tiltfile called fail()."""


@dataclass
class Recorded:
    """What the Tiltfile told Tilt."""

    contexts: list[str] = field(default_factory=list)
    yaml: list[str] = field(default_factory=list)  # folders given to kustomize
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    k8s: dict[str, dict[str, Any]] = field(default_factory=dict)
    local: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    enabled: list[str] | None = None


def evaluate(
    *, context: str = "kind-home-overspill", only: Sequence[str] | None = None, source: str | None = None
) -> Recorded:
    """Evaluate the Tiltfile (or `source`) as `tilt up -- --only …` would. Raises TiltError for fail()."""
    recorded = Recorded()
    builtins = _Builtins(recorded, context=context, arguments={} if only is None else {"only": list(only)})
    globals_ = starlark.Globals.extended_by([starlark.LibraryExtension.StructType])
    module = starlark.Module()
    for name, value in builtins.offered().items():
        if callable(value):
            module.add_callable(name, value)
        else:
            module[name] = value
    for name in ("define_string_list", "parse", "set_enabled"):
        module.add_callable(name, getattr(builtins, name))
    starlark.eval(module, starlark.parse("tilt", STRUCTS), globals_)
    text = TILTFILE.read_text() if source is None else source
    # Tilt's dialect allows statements such as `for` and `if` at the top of the file.
    parsed = starlark.parse("Tiltfile", text, starlark.Dialect.extended())
    try:
        starlark.eval(module, parsed, globals_, starlark.FileLoader(builtins.load))
    except starlark.StarlarkError as error:
        if builtins.failure is not None:
            raise TiltError(builtins.failure) from error
        raise
    return recorded


def assembled(folder: Path) -> list[dict[str, Any]]:
    """The objects that a kustomization brings together: its resources and components, theirs and so on."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: list[dict[str, Any]] = []
    for entry in [*kustomization.get("resources", []), *kustomization.get("components", [])]:
        path = (folder / entry).resolve()
        if path.is_dir():
            found += assembled(path)
        else:
            found += [one for one in yaml.safe_load_all(path.read_text()) if one is not None]
    return found


class _Builtins:
    def __init__(self, recorded: Recorded, *, context: str, arguments: Mapping[str, Any]) -> None:
        self.failure: str | None = None
        self._recorded = recorded
        self._context = context
        self._arguments = arguments

    def offered(self) -> dict[str, Any]:
        names = (
            "allow_k8s_contexts", "k8s_context", "fail", "update_settings", "ci_settings", "kustomize", "k8s_yaml",
            "k8s_resource", "local_resource", "link", "sync", "fall_back_on",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"TRIGGER_MODE_MANUAL": "manual"}

    def load(self, name: str) -> starlark.FrozenModule:
        extension = starlark.Module()
        for function in EXTENSIONS[name]:
            extension.add_callable(function, getattr(self, function))
        return extension.freeze()

    def fail(self, message: str) -> None:
        self.failure = message
        raise TiltError(message)

    # --- Tilt's own parameters, those that a sane Tiltfile may use ---------------------------------------------------

    def allow_k8s_contexts(self, contexts: str | list[str]) -> None:
        self._recorded.contexts += [contexts] if isinstance(contexts, str) else contexts

    def k8s_context(self) -> str:
        return self._context

    def update_settings(self, *, max_parallel_updates: int = 3, k8s_upsert_timeout_secs: int = 30) -> None:
        self._recorded.settings |= {
            "max_parallel_updates": max_parallel_updates,
            "k8s_upsert_timeout_secs": k8s_upsert_timeout_secs,
        }

    def ci_settings(self, *, timeout: str = "30m") -> None:
        self._recorded.settings["ci_timeout"] = timeout

    def kustomize(self, path: str) -> str:
        return path

    def k8s_yaml(self, rendered: str) -> None:
        self._recorded.yaml.append(rendered)

    def docker_build_with_restart(
        self, ref: str, context: str, *, entrypoint: list[str], live_update: list[dict[str, Any]],
        dockerfile: str = "Dockerfile", target: str = "", only: list[str] = (), restart_file: str = "/tmp/.restart-proc",
    ) -> None:  # fmt: skip
        self._recorded.images[ref] = {
            "context": context, "entrypoint": entrypoint, "live_update": live_update, "dockerfile": dockerfile,
            "target": target, "only": only, "restart_file": restart_file,
        }  # fmt: skip

    def sync(self, local: str, remote: str) -> dict[str, Any]:
        return {"step": "sync", "local": local, "remote": remote}

    def fall_back_on(self, files: list[str]) -> dict[str, Any]:
        return {"step": "fall_back_on", "files": files}

    def link(self, url: str, name: str) -> dict[str, str]:
        return {"url": url, "name": name}

    def k8s_resource(
        self, workload: str, *, labels: list[str] = (), resource_deps: list[str] = (), port_forwards: list[str] = (),
        links: list[dict[str, str]] = (), auto_init: bool = True, trigger_mode: str = "auto",
    ) -> None:  # fmt: skip
        assert workload not in self._recorded.k8s, f"{workload} twice"
        self._recorded.k8s[workload] = {
            "labels": labels, "resource_deps": resource_deps, "port_forwards": port_forwards, "links": links,
            "auto_init": auto_init, "trigger_mode": trigger_mode,
        }  # fmt: skip

    def local_resource(
        self, name: str, cmd: str | list[str], *, deps: list[str] = (), labels: list[str] = (), auto_init: bool = True,
        trigger_mode: str = "auto", allow_parallel: bool = False,
    ) -> None:  # fmt: skip
        assert name not in self._recorded.local, f"{name} twice"
        self._recorded.local[name] = {
            "cmd": cmd, "deps": deps, "labels": labels, "auto_init": auto_init, "trigger_mode": trigger_mode,
            "allow_parallel": allow_parallel,
        }  # fmt: skip

    def define_string_list(self, name: str, *, usage: str = "") -> None:
        assert usage, "a flag says what it is for"
        self._recorded.flags.append(name)

    def parse(self) -> dict[str, Any]:
        assert set(self._arguments) <= set(self._recorded.flags), "flags are defined before they are read"
        return dict(self._arguments)

    def set_enabled(self, resources: list[str]) -> None:
        self._recorded.enabled = resources
