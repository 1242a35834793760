"""What every view has in common.

Unknown fields are ignored, absent ones take their default, so that an object of a newer API server still decodes. This
module must not know any kind of object.
"""

from datetime import datetime
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
RawObject: TypeAlias = dict[str, Any]  # a part that we pass on or only need to know to be present
Quantities: TypeAlias = dict[str, str | int | float]  # resource name → quantity; custom resources may send bare numbers


class View(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all views: camelCase on the wire, defaults left out when encoded.

    What comes out of JSON has no cycles, so the garbage collector need not walk it: with 10,000 pods in a cache each of
    its full runs would otherwise hold up the event loop for over 100 ms.
    """
