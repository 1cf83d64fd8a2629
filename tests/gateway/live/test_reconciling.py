"""The books beside the engine's word, and what is learned from what passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.candidate import Candidate
from vramledger.admission.service_time import Load
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.admitter import Ended, Ending
from vramledger.gateway.live.cached_prefixes import CachedPrefixes
from vramledger.gateway.live.capacity import Capacity, of_replicas
from vramledger.gateway.live.engine_state import EngineState, state_of
from vramledger.gateway.live.events import TokensPerEvent
from vramledger.gateway.live.reconciling import CAREFUL_NS, FRESH_NS, NS_PER_S, Reconciled
from vramledger.gateway.live.service_times import LearnedTimes
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.observation import Sample

MS = 1_000_000


def state(at_ns: int, used: int | None) -> EngineState:
    return EngineState(asked_ns=at_ns, answered_ns=at_ns, used_blocks=used)


def test_what_the_books_do_not_explain_is_somebody_elses() -> None:
    books = Reconciled()
    books.told(state(NS_PER_S, 50), held_blocks=30, explained_blocks=30)
    assert (books.foreign_blocks, books.disagreement_blocks) == (20, 20)
    books.told(state(2 * NS_PER_S, 20), held_blocks=30, explained_blocks=30)
    assert (books.foreign_blocks, books.disagreement_blocks) == (0, -10)


def test_what_left_just_before_is_still_explained_and_what_left_long_ago_is_not() -> None:
    for left_ms, foreign in ((100, 0), (900, 25)):
        books = Reconciled()
        books.books_had(40, 2 * NS_PER_S - left_ms * MS)
        books.told(state(2 * NS_PER_S, 35), held_blocks=10, explained_blocks=10)
        assert books.foreign_blocks == foreign


def test_where_patience_costs_no_request_one_answer_alone_is_a_lag() -> None:
    books = Reconciled(is_patient=True)
    seen = []
    for second, used in enumerate((50, 50, 60, 30, 60)):
        books.told(state(second * NS_PER_S, used), held_blocks=30, explained_blocks=30)
        seen.append(books.foreign_blocks)
    assert seen == [0, 20, 20, 0, 0]


def test_an_old_word_makes_careful_and_keeps_blocks_back_and_none_at_all_only_careful() -> None:
    books = Reconciled()
    assert books.is_careful(0) and books.doubt_blocks(1000, 0) == 0 and books.age_ns(5) is None
    books.told(state(0, None), held_blocks=0, explained_blocks=0)
    assert books.is_careful(0)
    books.told(state(0, 5), held_blocks=5, explained_blocks=5)
    doubts = [books.doubt_blocks(1000, FRESH_NS + late * NS_PER_S) for late in (0, 1, 2, 5, 50)]
    assert doubts == [0, 20, 30, 60, 100]
    assert not books.is_careful(CAREFUL_NS) and books.is_careful(CAREFUL_NS + 1)


def test_an_engines_samples_as_blocks() -> None:
    has = Capacity(
        engine="vllm",
        layout=PoolLayout(num_blocks=64, groups=(BlockGroup(block_tokens=128),), reserved_blocks=1),
        max_model_len=4096,
        max_running=8,
        when_full=WhenFull.RECOMPUTE,
    )

    def read(*told: tuple[str, float, str]) -> EngineState:
        samples = [Sample(at_s=0.0, source=where, name=name, value=value) for name, value, where in told]
        return state_of(samples, has, asked_ns=1, answered_ns=2)

    assert read(("kv_usage_ratio", 3 / 63, "m")).used_blocks == 3
    two_words = read(("kv_used_tokens", 129, "m"), ("kv_usage_ratio", 0.1, "m"))
    assert (two_words.used_blocks, two_words.replicas) == (2, 1)
    assert read(("kv_used_blocks", 99, "m")).used_blocks == 63
    assert read(("running_requests", 4, "metrics"), ("running_requests", 4, "slots")).running_count == 4
    two = read(("waiting_requests", 4, "m"), ("waiting_requests", 3, "m"), ("kv_usage_ratio", -1.0, "m"))
    assert (two.waiting_count, two.used_blocks) == (7, None)
    labels = ("engine=0", "engine=1", "engine=1")
    shares = [
        Sample(at_s=0.0, source="m", name="kv_usage_ratio", value=share, label=label)
        for share, label in zip((0.5, 1.0, 0.9), labels, strict=True)
    ]
    both = of_replicas(has, 2)
    assert (both.layout.usable_blocks, both.max_running) == (126, 16)
    told = state_of(shares, both, asked_ns=1, answered_ns=2)
    assert (told.used_blocks, told.replicas) == (94, 2)
    before, after = read(("total_steps_count", 9, "m")), read(("total_steps_count", 2, "m"))
    assert after.is_of_a_later_start_than(before) and not before.is_of_a_later_start_than(after)


def test_times_are_foretold_from_medians_and_not_before_there_are_enough() -> None:
    times = LearnedTimes()
    for _ in range(4):
        times.first_token(1000, 200 * MS)
        times.tokens(0, 10, 100 * MS)
    assert times.first_token_ps(1000, 1000, Load()) == times.token_ps(Load()) == 0
    times.first_token(1000, 90_000 * MS)  # a stall
    times.tokens(0, 10, 100 * MS)
    assert times.first_token_ps(1000, 1000, Load()) == 200 * MS * 1000
    assert times.token_ps(Load()) == 10 * MS * 1000
    for _ in range(5):
        times.first_token(8000, 1600 * MS)
        times.tokens(31, 10, 400 * MS)
    assert times.first_token_ps(4000, 4000, Load()) == pytest.approx(800e9, rel=0.01)
    assert times.first_token_ps(1000, 9000, Load(prefill_tokens=15_000)) == pytest.approx(3200e9, rel=0.01)
    assert times.token_ps(Load(decode_seqs=31)) == 40 * MS * 1000
    assert times.token_ps(Load(decode_seqs=500)) > 40 * MS * 1000


def test_an_event_may_be_several_tokens() -> None:
    per_event = TokensPerEvent()
    assert per_event.tokens(7) == 7
    per_event.learn(Ending(how=Ended.COMPLETED, output_tokens=100, output_events=40))
    per_event.learn(Ending(how=Ended.COMPLETED, output_tokens=40, output_events=40, counted=True))
    assert per_event.tokens(10) == 25
    for _ in range(10_000):
        per_event.learn(Ending(how=Ended.COMPLETED, output_tokens=9, output_events=10))
    assert per_event.tokens(10) == 10


def asked(identity: int, keys: tuple[int, ...]) -> Candidate:
    return Candidate(identity=identity, prompt_tokens=len(keys) * 16 + 1, max_output_tokens=16, keys=keys)


def test_a_prefix_is_credited_until_as_many_blocks_were_taken_as_were_free_when_it_came_back() -> None:
    cache = CachedPrefixes(20, 16)
    first = asked(1, (1, 2, 3, 4))
    assert cache.cached_tokens(first, 0) == 0
    cache.let_in(1, first)
    assert cache.cached_tokens(first, 0) == 0  # not computed yet
    cache.computed(1)
    assert cache.cached_tokens(asked(2, (1, 2, 9)), 0) == 32
    cache.left(1, first, 8, held_blocks=0)
    assert [cache.cached_tokens(first, taken) for taken in (16, 17, 19, 20)] == [64, 48, 16, 0]
    for number in range(2, 6):
        cache.let_in(number, asked(number, (number * 10,)))
        cache.left(number, asked(number, (number * 10,)), 1, held_blocks=0)
    assert [cache.cached_tokens(first, taken) for taken in (0, 1, 4)] == [64, 48, 0]
    cache.forget()
    assert cache.cached_tokens(first, 0) == 0


def test_an_engine_that_finds_less_than_was_credited_is_credited_less() -> None:
    cache = CachedPrefixes(100, 16)
    cache.let_in(1, asked(1, (1, 2, 3, 4)))
    cache.computed(1)
    for _ in range(3):
        cache.confirmed(64, 0)
    assert cache.cached_tokens(asked(2, (1, 2, 3, 4)), 0) == 16
    for _ in range(30):
        cache.confirmed(64, 64)
    assert cache.cached_tokens(asked(2, (1, 2, 3, 4)), 0) >= 48


def test_an_engine_that_tells_only_the_sum_of_its_hits_is_believed_as_well() -> None:
    cache = CachedPrefixes(100, 16)
    cache.let_in(1, asked(1, (1, 2, 3, 4)))
    cache.computed(1)
    cache.hits_told(5_000)  # of before
    for total in (5_064, 5_128):
        cache.hits_told(total)
        cache.confirmed(64, None)
    assert cache.cached_tokens(asked(2, (1, 2, 3, 4)), 0) == 64
    for _ in range(6):
        cache.confirmed(64, None)
        cache.hits_told(5_128)
    assert cache.cached_tokens(asked(2, (1, 2, 3, 4)), 0) == 16


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8), st.booleans()), max_size=60))
def test_what_is_credited_is_in_an_lru_cache_of_that_size(moves: list[tuple[int, int, bool]]) -> None:
    """Against a pool that gives out its least recently used block, one request after the other."""
    blocks = 12
    cache, order = CachedPrefixes(blocks, 16), list(range(-blocks, 0))
    for identity, (family, length, is_whole) in enumerate(moves):
        keys = tuple(family * 100 + place for place in range(length))
        one = asked(identity, keys)
        credited = cache.surely_cached_tokens(one, 0) // 16
        assert all(key in order for key in keys[:credited])
        cache.let_in(identity, one)
        hits = next((place for place, key in enumerate(keys) if key not in order), len(keys))
        taken: list[int] = []
        for key in keys[:hits]:
            order.remove(key)
            taken.append(key)
        for key in [*keys[hits:], -1 - identity * 10]:  # the last, unfilled block has no name
            order.pop(0)
            taken.append(key)
        if is_whole:
            cache.computed(identity)
        cache.left(identity, one, 1, held_blocks=0)
        order += reversed(taken)
        assert len(order) == blocks
