"""What transformers calls its settings where it prints them: its flags' own names.

Source: transformers generation/configuration_utils.py, cli/serve.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from vramledger.engines.transformers.flags import TransformersFlags

FLAG_OF: Mapping[str, str] = {}
UNSHOWN: Mapping[str, object] = asdict(TransformersFlags())
LIMITS: frozenset[str] = frozenset()
WORDS: Mapping[str, Mapping[str, str]] = {}
EP_IS_SWITCH = False
