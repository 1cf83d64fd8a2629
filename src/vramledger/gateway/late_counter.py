"""Counting of prompts that begins once the engine is known: its endpoints, block size and length are not before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vramledger.gateway.admitter import Ending, PromptTokens, RequestFacts
from vramledger.gateway.config_sections import TokensSection
from vramledger.gateway.settings import Upstream
from vramledger.gateway.snapshot import InstanceState
from vramledger.gateway.tokens.counter import Counting
from vramledger.gateway.tokens.local_tokenizer import LocalTokenizer, local_tokenizer
from vramledger.gateway.tokens.settings import Ask, CountingSettings
from vramledger.gateway.upstream_asking import UpstreamAsking, close_all


class LateCounter:
    """A `PromptCounter` that counts nothing until `engines_known`, when nothing is admitted either."""

    def __init__(self, section: TokensSection, upstreams: Sequence[Upstream]) -> None:
        """Raises InputError or SourceError for a tokenizer that cannot be read."""
        self._section = section
        self._upstreams = upstreams
        self._tokenizer = _tokenizer(section)
        self._askings: list[UpstreamAsking] = []
        self.counting: Counting | None = None

    def engines_known(self, instances: Sequence[InstanceState], context_tokens: Sequence[int | None]) -> None:
        """Begins, unless it has begun, with the engines that are of the first one's kind. `context_tokens` are the longest prompt and output
        of each, as far as they are known by now: told again, what is longer than all of them can hold is not reckoned with from then on."""
        known = next((one for one in instances if one.engine), None)
        if known is None:
            return
        lengths = [
            length
            for one, length in zip(instances, context_tokens, strict=True)
            if one.engine in ("", known.engine)
        ]
        longest = None if None in lengths else max(length for length in lengths if length is not None)
        if self.counting is not None:
            self.counting.context_tokens = longest
            return
        section = self._section
        self._askings = [
            UpstreamAsking(upstream)
            for upstream, one in zip(self._upstreams, instances, strict=True)
            if one.engine in ("", known.engine)
        ]
        self.counting = Counting(
            CountingSettings(
                engine=known.engine,
                ask=section.ask,
                unsure_tokens=section.unsure_tokens,
                within_ms=section.within_ms,
                # Without a tokenizer here they would cost a question to the engine for every request.
                keys=self._tokenizer is not None or section.ask is Ask.ALWAYS,
                block_size=known.block_size or 16,
                context_tokens=longest,
            ),
            asking=self._askings,
            tokenizer=self._tokenizer,
        )

    async def count(self, asked: Mapping[str, object], facts: RequestFacts) -> PromptTokens | None:
        return facts.prompt if self.counting is None else await self.counting.count(asked, facts)

    def learn(self, facts: RequestFacts, ending: Ending) -> None:
        if self.counting is not None:
            self.counting.learn(facts, ending)

    def state(self) -> dict[str, Any]:
        """Prompts by who counted them, and what became of the questions to each engine that is asked."""
        if self.counting is None:
            return {}
        engines = [msgspec.to_builtins(one.tally) for one in self.counting.engines]
        return {**msgspec.to_builtins(self.counting.tally), "engines": engines}

    async def close(self) -> None:
        await close_all(self._askings)
        if self.counting is not None:
            self.counting.close()


def _tokenizer(section: TokensSection) -> LocalTokenizer | None:
    if not section.tokenizer:
        return None
    template = Path(section.chat_template) if section.chat_template else None
    return local_tokenizer(Path(section.tokenizer), template=template)
