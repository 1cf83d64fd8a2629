"""Hashed n-gram embeddings (Qwen4-Exp): one table of a prime number of rows for each hash head."""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.config import MAX_LAYERS, Config
from vramledger.units import round_up

MAX_HEADS = 1024
_WITNESSES = (2, 3, 5, 7)


class HashedNgrams(Struct, frozen=True, kw_only=True):
    """The n-gram branch of decoder layer `layer`.

    `rows` of `head_width` elements hold the tables of all `heads`; a token's `heads` rows together are `width`
    wide. `size` is n, `kernel` the taps of the convolution behind it, which `size` spreads apart.
    """

    layer: int
    rows: int
    head_width: int
    heads: int
    width: int
    size: int
    kernel: int

    @property
    def span(self) -> int:
        """Tokens the convolution reaches over, the current one included."""
        return (self.kernel - 1) * self.size + 1


def ngrams_from_config(config: Config, *, width: int, layers: int) -> tuple[HashedNgrams, ...]:
    """One branch for each of `ple_layer_ids` (counted from 1), sized as the class does (transformers
    models/qwen4_exp, Qwen4ExpTextNGramEmbedding): head k of all has the k-th prime from
    `ngram_vocab_size_base` on as its rows, and a layer's sum is rounded up.

    Raises ConfigError for a layer that is not there or a width that the heads do not divide.
    """
    ids = sorted(set(config.integers("ple_layer_ids", minimum=1, maximum=MAX_LAYERS)))
    if not ids:
        return ()
    if ids[-1] > layers:
        raise config.fail("ple_layer_ids", f"holds {ids[-1]}, but there are {layers} layers")
    embed = config.integer("ple_embed_dim", default=width)
    size = config.integer("ngram_size", default=3, minimum=2, maximum=MAX_HEADS)
    heads = (size - 1) * config.integer("heads_per_ngram", default=8, maximum=MAX_HEADS)
    if heads * len(ids) > MAX_HEADS:
        raise config.fail("heads_per_ngram", f"makes {heads * len(ids)} tables, more than {MAX_HEADS}")
    if embed % heads:
        raise config.fail("ple_embed_dim", f"{embed} does not divide by {heads} n-gram heads")
    divisor = config.integer("make_ngram_vocab_size_divisible_by", default=128)
    primes = primes_from(config.integer("ngram_vocab_size_base", default=20_000_000), heads * len(ids))
    return tuple(
        HashedNgrams(
            layer=layer - 1,
            rows=round_up(sum(primes[index * heads : (index + 1) * heads]), divisor),
            head_width=embed // heads,
            heads=heads,
            width=embed,
            size=size,
            kernel=config.integer("ple_conv_kernel_size", default=4, maximum=4096),
        )
        for index, layer in enumerate(ids)
    )


def primes_from(start: int, count: int) -> list[int]:
    """The first `count` primes not below `start`, for start up to 2**31."""
    found: list[int] = []
    candidate = start
    while len(found) < count:
        if is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return found


def is_prime(value: int) -> bool:
    """Miller-Rabin; these witnesses decide every value below 3 215 031 751 (Jaeschke 1993)."""
    if value < 2:
        return False
    for prime in _WITNESSES:
        if value % prime == 0:
            return value == prime
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(value, witness, odd, twos) for witness in _WITNESSES)


def _passes(value: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, value)
    if power in (1, value - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % value
        if power == value - 1:
            return True
    return False
