"""What all tests share: how hypothesis judges. Time is no failure here, and a failure prints how to repeat it.

Where CI is set the examples are the same each time, so that a landing is judged by its change; people's runs explore.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "overspill",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("overspill")
