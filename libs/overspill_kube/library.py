"""The few parts of kubernetes-asyncio that we use: configuration, credentials, TLS.

Importing the package in the normal way imports its 1,500 generated models: half a second and 36 MB in each of a dozen
processes, for nothing, as objects are decoded by our own views. So the two packages that would do that stand in as
empty ones while the modules we want are imported, and are taken away again: a later normal import works as ever. A test
holds both halves of this promise.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

_ROOT: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_ROOT}.client"


def _bare(name: str, folders: list[str]) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = folders
    return module


def _import() -> tuple[Any, Any, Any]:
    """The modules `client.configuration`, `client.rest` and `config`, without what their packages would pull in."""
    names = (f"{_CLIENT}.configuration", f"{_CLIENT}.rest", f"{_ROOT}.config")
    if _CLIENT in sys.modules:
        configuration, rest, config = (importlib.import_module(name) for name in names)
        return configuration, rest, config
    spec = importlib.util.find_spec(_ROOT)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{_ROOT} is not installed", name=_ROOT)
    folders = list(spec.submodule_search_locations)
    root, client = _bare(_ROOT, folders), _bare(_CLIENT, [f"{folder}/client" for folder in folders])
    sys.modules[_ROOT], sys.modules[_CLIENT] = root, client
    try:
        configuration = importlib.import_module(names[0])
        # `config` asks its sibling package for these two by name; it makes an ApiClient only in a function we do not
        # call.
        client.__dict__.update(Configuration=configuration.Configuration, ApiClient=object)
        rest, config = importlib.import_module(names[1]), importlib.import_module(names[2])
    finally:
        del sys.modules[_ROOT], sys.modules[_CLIENT]
    return configuration, rest, config


_configuration, _rest, config = _import()
Configuration: Any = _configuration.Configuration
RESTClientObject: Any = _rest.RESTClientObject
