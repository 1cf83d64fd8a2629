"""Settings shared by all tests."""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import HealthCheck, settings

# `make fuzz` looks further than a plain run: VRAMLEDGER_EXAMPLES cases a property instead of the default.
settings.register_profile("plain", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=int(os.environ.get("VRAMLEDGER_EXAMPLES", "2000")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("long" if "VRAMLEDGER_EXAMPLES" in os.environ else "plain")

# A run that a shell put into the background inherits an ignored SIGINT, and so would every command that the tests interrupt.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
