"""What every engine is asked, and how each one spells it.

The questions are few: how many devices a layer is cut over (tp), how many stages (pp), experts spread or not (ep), the
context of a request, how many requests at once, the format of the KV cache. Everything else is an engine's own flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from vramledger.engines import check_engine, engine_name, engine_names, find_engine
from vramledger.engines.option import closest, known_names, plain_name, read_value, unknown_flag
from vramledger.errors import FlagError, shorter
from vramledger.search.weights import choice_of

KV_LOSS: Mapping[str, int] = MappingProxyType(
    {"auto": 0, "bf16": 0, "fp16": 0, "fp8": 1, "fp8_e5m2": 1, "int8": 1, "nvfp4": 2, "int4": 2}
)
"""KV formats by the names used here, with their class of precision: 0 keeps 16 bits (or what the checkpoint asks
for), 1 has 8 bits, 2 has 4."""


class Question(Struct, frozen=True, kw_only=True):
    """One point of a grid. `engine` may carry a version; `context_tokens` None is the model's own limit;
    `model` numbers the model asked about, `weights` and `kv` are names of `weights.FORMATS` and `KV_LOSS`."""

    model: int = 0
    weights: str = "stored"
    device: str
    engine: str = "vllm"
    tp: int = 1
    pp: int = 1
    ep: bool = False
    kv: str = "auto"
    context_tokens: int | None = None
    concurrency: int = 1

    @property
    def devices(self) -> int:
        return self.tp * self.pp


class Terms(Struct, frozen=True, kw_only=True):
    """An engine's names for the common questions; None where it has no such flag.

    `sequences` limits the requests that run at once: it is given where more than `sequences_free` are asked for, which
    every version allows by itself. `ep_counts` is set where expert parallel is a number of ranks, not a switch,
    `context_of_all` where the context flag is the sum over requests. `pp` may be a number of devices that share layers by
    depth. `kv` are the flags of the cache's type, `kv_names` the engine's word for each common name. `file_type`
    is a flag that stores the weights in another format. `kv_needs` is the least compute capability (89 for 8.9) of a
    common name where the engine does not itself say so. `keeps_weights` is False for an engine that may leave
    weights in host memory unasked.
    """

    tp: str | None = None
    pp: str | None = None
    ep: str | None = None
    ep_counts: bool = False
    context: str
    context_of_all: bool = False
    sequences: str | None = None
    sequences_free: int = 0
    kv: tuple[str, ...] = ()
    kv_names: Mapping[str, str] = {}
    kv_needs: Mapping[str, int] = {}
    file_type: str | None = None
    keeps_weights: bool = True


# Sources: the engines' own option tables in `engines/*/options.py`.
_TERMS: dict[str, Terms] = {
    "vllm": Terms(
        tp="tensor_parallel_size",
        pp="pipeline_parallel_size",
        ep="enable_expert_parallel",
        context="max_model_len",
        sequences="max_num_seqs",
        sequences_free=128,
        kv=("kv_cache_dtype",),
        kv_names={
            "bf16": "bfloat16",
            "fp16": "float16",
            "fp8": "fp8",
            "fp8_e5m2": "fp8_e5m2",
            "int8": "int8_per_token_head",
            "nvfp4": "nvfp4",
            "int4": "int4_per_token_head",
        },
    ),
    "sglang": Terms(
        tp="tp_size",
        pp="pp_size",
        ep="ep_size",
        ep_counts=True,
        context="context_length",
        kv=("kv_cache_dtype",),
        kv_names={
            "bf16": "bf16",
            "fp8": "fp8_e4m3",
            "fp8_e5m2": "fp8_e5m2",
            "nvfp4": "nvfp4",
        },
    ),
    "llamacpp": Terms(
        pp="gpus",
        context="ctx_size",
        context_of_all=True,
        sequences="parallel",
        kv=("cache_type_k", "cache_type_v"),
        kv_names={"bf16": "bf16", "fp16": "f16", "int8": "q8_0", "int4": "q4_0"},
        file_type="ftype",
        keeps_weights=False,
    ),
    "tensorrt-llm": Terms(
        tp="tp_size",
        pp="pp_size",
        ep="ep_size",
        ep_counts=True,
        context="max_seq_len",
        sequences="max_batch_size",
        sequences_free=256,
        kv=("kv_cache_dtype",),
        kv_names={"bf16": "bfloat16", "fp16": "float16", "fp8": "fp8", "int8": "int8", "nvfp4": "nvfp4"},
        kv_needs={"fp8": 89, "nvfp4": 100},
    ),
    "transformers": Terms(
        tp="tp_size",
        context="max_length",
        sequences="max_requests_per_batch",
        sequences_free=1024,
    ),
}


class Unasked(Exception):
    """A question that an engine has no words for; the message says which."""


def asked_engines() -> tuple[str, ...]:
    """Engines that can be asked the common questions."""
    return tuple(name for name in engine_names() if name in _TERMS)


@lru_cache(maxsize=256)
def terms_of(engine: str) -> Terms:
    """How an engine spells the common questions. Raises FlagError for an engine or a version without rules here."""
    check_engine(engine)
    found = _TERMS.get(engine_name(engine))
    if found is None:
        known = ", ".join(asked_engines())
        raise FlagError(
            f"engine {engine!r} cannot be asked the common questions yet; those that can: {known}",
            flag="engine",
            value=engine,
        )
    return found


def flags_of(question: Question) -> dict[str, object]:
    """The question in the engine's own flags.

    Raises Unasked where the engine has no words for a part of it.
    """
    terms, flags = terms_of(question.engine), dict[str, object]()
    name = engine_name(question.engine)
    if question.tp > 1:
        lacks = "cuts no layer over devices (tp)" + ("; pp shares layers out over them" if terms.pp else "")
        flags[_word(terms.tp, name, lacks)] = question.tp
    if question.pp > 1:
        flags[_word(terms.pp, name, "has no pipeline stages (pp)")] = question.pp
    if question.ep:
        word = _word(terms.ep, name, "has no expert parallel (ep)")
        flags[word] = question.tp if terms.ep_counts else True
    if question.context_tokens is not None:
        times = question.concurrency if terms.context_of_all else 1
        flags[terms.context] = question.context_tokens * times
    if terms.sequences is not None and question.concurrency > terms.sequences_free:
        flags[terms.sequences] = question.concurrency
    if question.kv != "auto":
        kind = terms.kv_names.get(question.kv)
        if kind is None:
            raise Unasked(f"{name} has no {question.kv} KV cache")
        flags |= dict.fromkeys(terms.kv, kind)
    choice = choice_of(question.weights)
    if name not in choice.engines:
        raise Unasked(f"{name} loads no {question.weights} weights")
    if terms.file_type is not None and choice.file_type:
        flags[terms.file_type] = choice.file_type
    return flags


def _word(word: str | None, engine: str, lacks: str) -> str:
    if word is None:
        raise Unasked(f"{engine} {lacks}")
    return word


def check_engine_flags(flags: Mapping[str, Mapping[str, object]], engines: Iterable[str]) -> None:
    """Raises FlagError for flags of an engine that is not among `engines`, as they are named, and for flags that it does
    not have; their values are for the engine to read."""
    asked = tuple(engines)
    if not isinstance(flags, Mapping) or not all(isinstance(own, Mapping) for own in flags.values()):
        raise FlagError(f"flags are names and values by engine, not {shorter(flags)}", flag="flags")
    for engine, own in flags.items():
        if engine not in asked:
            raise FlagError(
                f"flags for {engine!r}, which is not asked; asked: {', '.join(asked)}",
                flag="flags",
                value=engine,
            )
        known = known_names(find_engine(engine)[0].OPTIONS)
        for name in own:
            if name not in known:
                raise unknown_flag(name, known, engine_name(engine))


def read_engine_flags(texts: Iterable[str], engines: Iterable[str]) -> dict[str, dict[str, str]]:
    """ "sglang:mem_fraction_static=0.85" and the like, by the engine as it was asked for.

    What stands before the colon is an engine's name, for all versions of it that are asked, or one with its version.
    A flag without a value is a switch that is set. Raises FlagError for an engine that is not asked, for a flag
    that it does not have and for a value that the flag does not take.
    """
    asked = tuple(engines)
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        engine, colon, assignment = text.partition(":")
        flag, equals, value = assignment.partition("=")
        name = plain_name(flag)
        meant = [
            item
            for item in asked
            if engine.strip() == item or ("==" not in engine and engine_name(engine) == engine_name(item))
        ]
        if not colon or not name:
            raise FlagError(
                f"--flags {text!r} is not ENGINE:FLAG=VALUE, as in vllm:gpu_memory_utilization=0.95",
                flag="flags",
                value=text,
            )
        if not meant:
            raise FlagError(
                f"--flags {text!r} is for an engine that is not asked; asked: {', '.join(asked)}",
                flag="flags",
                value=text,
                closest=closest(engine, asked),
            )
        known = known_names(find_engine(meant[0])[0].OPTIONS)
        if name not in known:
            raise unknown_flag(name, known, engine_name(meant[0]))
        given = value if equals else "true"
        read_value(known[name], given)
        for item in meant:
            found.setdefault(item, {})[known[name].name] = given
    return found
