"""Counts prompts: by the engine's own endpoint, a tokenizer beside the gateway, or what earlier prompts taught."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from vramledger.gateway.admitter import Ending, Kind, PromptTokens, RequestFacts, TokenSource
from vramledger.gateway.request_facts import prompt_of, texts_in
from vramledger.gateway.tokens.chat_template import Unrenderable
from vramledger.gateway.tokens.counted_cache import CountedCache, CountedPrompt, Name, name_of
from vramledger.gateway.tokens.engine_counting import LARGE_BYTES, EngineCounting
from vramledger.gateway.tokens.lengths import TAUGHT, Group, Length, LengthModel
from vramledger.gateway.tokens.local_tokenizer import LocalTokenizer
from vramledger.gateway.tokens.off_loop import Busy, OffLoop
from vramledger.gateway.tokens.prefix_keys import keys_in_turns, seed_of
from vramledger.gateway.tokens.prompt_shape import PromptShape, shape_of, texts_of
from vramledger.gateway.tokens.regressors import (
    BYTES_PRIOR,
    TEXT_PRIOR,
    around_tokens,
    cohort_of,
    group_of,
    row_of,
)
from vramledger.gateway.tokens.settings import Ask, CountingSettings
from vramledger.gateway.upstream_asking import UpstreamAsking

LOG = logging.getLogger(__name__)
UNDER_WAY = 16_384
"""Requests whose shape is remembered until they end."""
OPEN_TOKENS = 131_072
"""What an engine may add of its own memory where the model's limit is not known."""
MEDIA_TOKENS = 32_768
"""What one image, sound or film may take where the model's limit is not known."""
LOCAL_CHARACTERS = 2_000
"""Texts longer than this are tokenized on another thread: a tokenizer does one to three characters a microsecond."""

SAME_PRIOR = (1.0,)
COUNTED: Group = (None, None)
"""Errors of counts are not told apart by length or text."""
WITH_IDS = frozenset((Kind.CHAT, Kind.COMPLETION, Kind.EMBEDDING))
"""Kinds of which engines tell the tokens themselves, and not their number alone."""
Result = TypeVar("Result")


class CountingTally(msgspec.Struct, kw_only=True):
    """Prompts by who counted them; numbers only grow."""

    engine: int = 0
    tokenizer: int = 0
    learned: int = 0
    failures: int = 0
    """Prompts that counting failed on, and that the estimate served."""
    wrong: int = 0
    """Prompts that the engine or tokenizer had counted otherwise than the engine in the end reported."""
    above: int = 0
    """Prompts longer than the most that had been told."""
    learned_from: int = 0


class _Noted(msgspec.Struct):
    """What is remembered of a request until it ends; no text."""

    shape: PromptShape
    counted: int | None = None
    source: TokenSource | None = None
    text_tokens: int | None = None


class Counting:
    """A `PromptCounter`. All of it lives in one event loop."""

    def __init__(
        self,
        settings: CountingSettings,
        *,
        asking: Sequence[UpstreamAsking] = (),
        tokenizer: LocalTokenizer | None = None,
        secret: bytes | None = None,
    ) -> None:
        """`asking` are the engines that serve the same model: of those that answer of late the one with the fewest questions is asked. They
        stay the caller's to close. `secret` (up to 64 bytes) makes identities of blocks comparable between gateways; otherwise it is random.
        """
        self.settings = settings
        self.context_tokens = settings.context_tokens
        """The longest prompt and output that an engine takes, once that is known."""
        self.tally = CountingTally()
        self._secret = secret or secrets.token_bytes(32)
        self._off_loop = OffLoop(most=settings.waiting)
        self.engines = [
            EngineCounting(
                settings.engine,
                one,
                within_ms=settings.within_ms,
                waiting=settings.waiting,
                pause_ms=settings.pause_ms,
                off_loop=self._off_loop,
            )
            for one in asking
            if settings.engine and settings.ask is not Ask.NEVER
        ]
        self._tokenizer = tokenizer
        self.cache = CountedCache(prompts=settings.cached_prompts, keys=settings.cached_keys)
        self._by_bytes = LengthModel(BYTES_PRIOR, quantile=settings.quantile)
        self._by_text = LengthModel(TEXT_PRIOR, quantile=settings.quantile)
        self._by_count = LengthModel(SAME_PRIOR, quantile=settings.quantile)
        self._noted: OrderedDict[int, _Noted] = OrderedDict()

    async def count(self, asked: Mapping[str, object], facts: RequestFacts) -> PromptTokens | None:
        """Raises nothing but CancelledError, and then leaves nothing behind."""
        try:
            return await self._count(asked, facts)
        except Exception as error:
            # Its text may quote the prompt.
            LOG.error("counting the prompt of request %d failed (%s)", facts.number, type(error).__name__)
            self.tally.failures += 1
            return facts.prompt
        except BaseException:
            self._noted.pop(facts.number, None)
            raise

    async def _count(self, asked: Mapping[str, object], facts: RequestFacts) -> PromptTokens | None:
        if facts.prompt is not None:
            return await self._with_keys(facts.prompt, asked, facts)
        try:
            shape = await self._apart(
                lambda: shape_of(facts.kind, asked, facts.prompt_bytes), facts.prompt_bytes > LARGE_BYTES
            )
        except Busy:
            return None
        noted = self._noted[facts.number] = _Noted(shape)
        if len(self._noted) > UNDER_WAY:
            self._noted.popitem(last=False)
        told = self._estimate(facts, shape)
        if not shape.media and not shape.is_open and shape.characters <= self.settings.longest_characters:
            question = _Question(asked, facts, shape, self._secret)
            if self.settings.ask is not Ask.ALWAYS:
                told = await self._by_tokenizer(question, noted) or told
            if self.settings.ask is Ask.ALWAYS or self._leaves_open(told, facts.kind):
                exact = await self._by_engine(question, noted)
                if exact is None and self.settings.ask is Ask.ALWAYS:
                    exact = await self._by_tokenizer(question, noted)
                told = exact or told
        self._tally(told)
        return self._cut(told, asked, facts.kind)

    def learn(self, facts: RequestFacts, ending: Ending) -> None:
        """What the engine reports of a prompt teaches the estimate, and how far the other counts can be trusted."""
        noted = self._noted.pop(facts.number, None)
        reported = ending.prompt_tokens
        # Engines report several prompts together (vLLM), or the first alone (llama.cpp).
        if noted is None or noted.shape.prompts > 1 or (reported is not None and reported <= 0):
            return
        actual = (
            reported
            if reported is not None
            else noted.counted
            if noted.source is TokenSource.ENGINE
            else None
        )
        if actual is None:
            return
        self.tally.learned_from += 1
        shape, cohort = noted.shape, cohort_of(facts, noted.shape)
        group = group_of(shape)
        self._by_bytes.learn(cohort, row_of(shape), group, actual)
        if noted.text_tokens is not None:
            self._by_text.learn(cohort, row_of(shape, noted.text_tokens), group, actual)
        if reported is None:
            return
        if facts.prompt is not None and reported > facts.prompt.most_tokens:
            self.tally.above += 1
        if noted.counted is not None:
            self._by_count.learn((cohort, noted.source), (float(noted.counted),), COUNTED, reported)
            self.tally.wrong += noted.counted != reported

    def close(self) -> None:
        """Ends what is being counted."""
        self._off_loop.close()

    def _leaves_open(self, told: PromptTokens, kind: Kind) -> bool:
        """Whether the engine's word could change a decision."""
        if told.most_tokens - told.tokens > self.settings.unsure_tokens:
            return True
        if told.source is TokenSource.LEARNED and told.observations < TAUGHT:
            return (
                True  # nothing is known of the estimate's error: a short prompt would be booked by its bytes
            )
        return (
            self.settings.keys
            and not told.keys
            and told.most_tokens >= self.settings.block_size
            and kind in WITH_IDS
        )

    async def _by_engine(self, question: _Question, noted: _Noted) -> PromptTokens | None:
        if not self.engines:
            return None
        name = await self._name(question, TokenSource.ENGINE)
        known = self.cache.get(name) if name is not None else None
        if known is None:
            kind = question.facts.kind
            # One of them is asked, whatever comes of it: a second would take as long again.
            engine = min(self.engines, key=lambda one: (not one.may_be_asked(kind), one.pending))
            told = await engine.count(kind, question.asked, question.facts.prompt_bytes)
            if told is None:
                return None
            known = CountedPrompt(tokens=told.tokens, keys=await self._keys(told.ids, question.seed))
            if name is not None:
                self.cache.put(name, known)
        return self._exactly(known, TokenSource.ENGINE, question.facts, noted)

    async def _by_tokenizer(self, question: _Question, noted: _Noted) -> PromptTokens | None:
        tokenizer, facts = self._tokenizer, question.facts
        if tokenizer is None:
            return None
        is_whole = facts.kind in WITH_IDS and (facts.kind is not Kind.CHAT or tokenizer.template is not None)
        name = await self._name(question, TokenSource.TOKENIZER)
        known = self.cache.get(name) if name is not None else None
        if known is None:
            work = _tokenizing(tokenizer, facts.kind if is_whole else None, question.asked)
            is_long = question.shape.characters + question.shape.json_bytes > LOCAL_CHARACTERS
            try:
                ids = await self._apart(work, is_long)
            except (Busy, Unrenderable, ValueError):
                return None
            keys = await self._keys(ids, question.seed) if is_whole and question.shape.prompts == 1 else ()
            known = CountedPrompt(tokens=len(ids), keys=keys)
            if name is not None:
                self.cache.put(name, known)
        if is_whole:
            return self._exactly(known, TokenSource.TOKENIZER, facts, noted)
        noted.text_tokens = known.tokens
        shape = question.shape
        row = row_of(shape, known.tokens)
        length = self._by_text.forecast(cohort_of(facts, shape), row, group_of(shape))
        # Nobody counted what the template adds.
        return self._bounded(length, known.tokens + around_tokens(facts.kind, shape), shape)

    def _exactly(
        self, known: CountedPrompt, source: TokenSource, facts: RequestFacts, noted: _Noted
    ) -> PromptTokens:
        """A count with what such counts have been wrong by."""
        noted.counted, noted.source = known.tokens, source
        past = self._by_count.forecast(
            (cohort_of(facts, noted.shape), source), (float(known.tokens),), COUNTED
        )
        most = max(known.tokens, past.most or 0)
        return PromptTokens(
            tokens=known.tokens,
            most_tokens=most,
            source=source,
            keys=known.keys,
            key_tokens=self.settings.block_size if known.keys else 0,
        )

    def _estimate(self, facts: RequestFacts, shape: PromptShape) -> PromptTokens:
        length = self._by_bytes.forecast(cohort_of(facts, shape), row_of(shape), group_of(shape))
        # A byte has at most one token: tokenizers that know no better spell a text in bytes.
        return self._bounded(length, shape.text_bytes + around_tokens(facts.kind, shape), shape)

    def _bounded(self, length: Length, bound: int, shape: PromptShape) -> PromptTokens:
        context = self.context_tokens
        if shape.media or shape.is_open:
            more = shape.media * MEDIA_TOKENS + (OPEN_TOKENS if shape.is_open else 0)
            bound = max(bound, context) if context is not None else bound + more
        tokens = max(1, min(length.tokens, bound))
        most = bound if length.most is None else min(length.most, bound)
        if context is not None:
            most = min(most, context)
        return PromptTokens(
            tokens=tokens,
            most_tokens=max(tokens, most),
            source=TokenSource.LEARNED,
            observations=length.observations,
        )

    async def _with_keys(
        self, prompt: PromptTokens, asked: Mapping[str, object], facts: RequestFacts
    ) -> PromptTokens:
        """The client sent tokens; of several prompts none has keys."""
        ids = prompt_of(asked)
        if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], list):
            ids = ids[0]
        if not self.settings.keys or not isinstance(ids, list) or len(ids) != prompt.tokens:
            return prompt
        keys = await self._keys(ids, seed_of(self._secret, facts, asked))
        return replace(prompt, keys=keys, key_tokens=self.settings.block_size if keys else 0)

    async def _keys(self, ids: Sequence[int] | None, seed: bytes) -> tuple[int, ...]:
        if ids is None or not self.settings.keys:
            return ()
        keys: list[int] = []
        for turn in keys_in_turns(ids, self.settings.block_size, seed):
            if keys:
                await asyncio.sleep(0)
            keys += turn
        return tuple(keys)

    async def _name(self, question: _Question, source: TokenSource) -> Name | None:
        """What the cache knows it by; None for what cannot be named."""
        if not question.is_named:
            question.is_named = True
            try:
                question.name = await self._apart(
                    question.make_name, question.facts.prompt_bytes > LARGE_BYTES
                )
            except (Busy, ValueError, TypeError, RecursionError):
                question.name = None
        return None if question.name is None else (question.name, source)

    async def _apart(self, work: Callable[[], Result], is_long: bool) -> Result:
        return await self._off_loop.run(work) if is_long else work()

    def _cut(self, told: PromptTokens, asked: Mapping[str, object], kind: Kind) -> PromptTokens:
        """vLLM cuts a prompt to `truncate_prompt_tokens` of its last tokens. Responses and Anthropic's messages have no such member (0.32.0)."""
        most = asked.get("truncate_prompt_tokens")
        if self.settings.engine != "vllm" or kind not in WITH_IDS:
            return told
        if type(most) is not int or not 0 < most < told.most_tokens:
            return told
        return replace(told, tokens=min(told.tokens, most), most_tokens=most, keys=(), key_tokens=0)

    def _tally(self, told: PromptTokens) -> None:
        if told.source is TokenSource.ENGINE:
            self.tally.engine += 1
        elif told.source is TokenSource.TOKENIZER:
            self.tally.tokenizer += 1
        else:
            self.tally.learned += 1


class _Question:
    """One request while it is counted."""

    def __init__(
        self,
        asked: Mapping[str, object],
        facts: RequestFacts,
        shape: PromptShape,
        secret: bytes,
    ) -> None:
        self.asked = asked
        self.facts = facts
        self.shape = shape
        self.seed = seed_of(secret, facts, asked)
        self.is_named = False
        self.name: bytes | None = None

    def make_name(self) -> bytes:
        return name_of(self.seed, self.facts.kind, self.asked)


def _tokenizing(
    tokenizer: LocalTokenizer, kind: Kind | None, asked: Mapping[str, object]
) -> Callable[[], Sequence[int]]:
    """Work that gives the tokens of a chat or of the longest prompt; for `None`, of all text alone."""
    if kind is Kind.CHAT:
        return lambda: tokenizer.chat_ids(asked)
    if kind is None:
        return lambda: tokenizer.ids(["\n".join(_chat_texts(asked))], special=False)[0]
    special = asked.get("add_special_tokens") is not False

    def prompts() -> Sequence[int]:
        texts = texts_of(prompt_of(asked))
        if texts is None:
            raise ValueError("not text")
        return max(tokenizer.ids(texts, special=special), key=len)

    return prompts


def _chat_texts(asked: Mapping[str, object]) -> Iterator[str]:
    for name in ("system", "instructions", "messages", "input"):
        yield from texts_in(asked.get(name))
