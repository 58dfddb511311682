"""For all tests: the same examples in each run, however fast this machine makes them, and a SIGINT that works."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# A shell lets its background jobs ignore SIGINT. The processes of the tests would inherit that, and some are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
