"""The matrices that an adapter's config asks of a base model, for adapters whose own headers were not read.

Source: peft tuners/tuners_utils.py (check_target_module_exists, _maybe_include_all_linear_layers), utils/other.py
(get_pattern_key).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vramledger.models.adapters.adapter import Adapter, LoraPair
from vramledger.models.adapters.config import AdapterConfig
from vramledger.models.model import Model
from vramledger.models.quantization.patterns import compile_pattern
from vramledger.models.sources.names import compress
from vramledger.models.tensors import Role, Tensor

ALL_LINEAR = "all-linear"
Matches = Callable[[str], bool]


def described_pairs(adapter: Adapter, model: Model) -> tuple[LoraPair, ...]:
    """A pair for every matrix that the config's targets name, of the rank its patterns give.

    The element type is the one that explains the size of the weight file best, float32 where there is none, as
    PEFT keeps trained matrices. Raises ConfigError for a pattern that is too involved to be matched safely.
    """
    config, where = adapter.config, adapter.where
    wanted, refused = _target(config, where), _excluded(config, where)
    ranks = [
        (compile_pattern(rf"(?:.*\.)?(?:{key})$", f"{where}: rank_pattern"), rank)
        for key, rank in config.rank_pattern
    ]
    out: list[tuple[Tensor, int, list[int]]] = []
    for tensor in model.tensors:
        by_rank: dict[int, list[int]] = {}
        for path, layer in _paths(tensor):
            if config.layers_to_transform is not None and layer not in config.layers_to_transform:
                continue
            if wanted(path) and not refused(path) and _is_candidate(tensor, config):
                rank = next((value for pattern, value in ranks if pattern.match(path)), config.rank)
                by_rank.setdefault(rank, []).append(layer)
        out += [(tensor, rank, layers) for rank, layers in by_rank.items()]
    elements = sum(_pair(tensor, rank, layers, 1).elements for tensor, rank, layers in out)
    width = 4
    if elements and adapter.disk_bytes:
        width = min((2, 4), key=lambda size: abs(adapter.disk_bytes - size * elements))
    return tuple(_pair(tensor, rank, layers, width) for tensor, rank, layers in out)


def _pair(tensor: Tensor, rank: int, layers: list[int], width: int) -> LoraPair:
    experts = tensor.num_experts
    matrix = tensor.shape[1:] if experts else tensor.shape
    is_embedding = tensor.role is Role.EMBEDDING
    d_out, d_in = (matrix[1], matrix[0]) if is_embedding else (matrix[0], matrix[1])
    has_index = bool(tensor.layers) or tensor.copies > 1
    count = len(layers) * max(experts, 1)
    module = tensor.module
    for mark in ("{layer}", "{block}", "{expert}"):
        module = module.replace(mark, "{}")
    return LoraPair(
        module=module,
        rank=rank,
        d_in=d_in,
        d_out=d_out,
        layers=compress(layers) if has_index else (),
        count=count,
        dtype="F16" if width == 2 else "F32",
        stored_bytes=count * rank * (d_in + d_out) * width,
        is_embedding=is_embedding,
    )


def _paths(tensor: Tensor) -> Iterator[tuple[str, int]]:
    """The module's path under each of its first indices; the first expert stands for all."""
    if not tensor.name.endswith(".weight") and not tensor.num_experts:
        return
    module = tensor.module.replace("{expert}", "0")
    for index in tensor.layers or range(tensor.copies):
        yield module.replace("{layer}", str(index)).replace("{block}", str(index)), index


def _is_candidate(tensor: Tensor, config: AdapterConfig) -> bool:
    """Matrices PEFT wraps: linears, and the embedding or head where the targets name them."""
    matrix = tensor.shape[1:] if tensor.num_experts else tensor.shape
    if len(matrix) != 2:
        return False
    if config.target_pattern == ALL_LINEAR:
        return tensor.linear and tensor.role is not Role.LM_HEAD
    return tensor.linear or tensor.role in (Role.EMBEDDING, Role.LM_HEAD, Role.ROUTER)


def _target(config: AdapterConfig, where: str) -> Matches:
    if config.target_pattern == ALL_LINEAR:
        return lambda path: True
    return _names(config.target_modules, config.target_pattern, f"{where}: target_modules")


def _excluded(config: AdapterConfig, where: str) -> Matches:
    return _names(config.exclude_modules, config.exclude_pattern, f"{where}: exclude_modules")


def _names(names: tuple[str, ...], pattern: str, where: str) -> Matches:
    """Paths that are one of `names` or end in one, or that the whole of `pattern` matches."""
    if pattern:
        compiled: re.Pattern[str] = compile_pattern(pattern, where)
        return lambda path: compiled.fullmatch(path) is not None
    exact = frozenset(names)
    ends = tuple(f".{name}" for name in names)
    return lambda path: path in exact or path.endswith(ends)
