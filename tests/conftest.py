"""Settings shared by all tests."""

from __future__ import annotations

import os

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
