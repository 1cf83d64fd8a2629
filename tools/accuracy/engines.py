"""The engines whose cases are compared, in the order of the table."""

from __future__ import annotations

from typing import cast

from tools.accuracy import llamacpp, sglang, trtllm, vllm
from tools.accuracy.comparison import EngineCases

ENGINES: tuple[EngineCases, ...] = tuple(
    cast(EngineCases, module) for module in (vllm, sglang, llamacpp, trtllm)
)
