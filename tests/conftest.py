"""What all tests share: how hypothesis judges. Time is no failure here, and a failure prints how to repeat it."""

from hypothesis import HealthCheck, settings

settings.register_profile("overspill", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("overspill")
