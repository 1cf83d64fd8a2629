"""Flags with the library's defaults filled in, by release.

Source: transformers generation/continuous_batching/initialization.py (`resolve_continuous_batching_config`),
continuous_api.py (`switch_to_cb_friendly_attn`), generation/configuration_utils.py.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.transformers.flags import TransformersFlags
from vramledger.engines.transformers.geometry import FULL, Geometry
from vramledger.engines.transformers.version import Rules, TransformersVersion
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.hardware.catalogue import Device
from vramledger.models.model import Model

PAGE_TOKENS = 256
FIRST_PAGE_TOKENS = 32
REQUESTS = 1024
BLOCKS_PER_REQUEST = 32
CONFIG_SINCE = 4
"""5.4 brought ContinuousBatchingConfig; before, the generation config's attributes were read."""
CPU_SHARE_SINCE = 21
SWITCHES_TO_FLASH_SINCE = 15
HOST_MEMORY_SINCE = 1
SHARE_BY_PROCESSORS_SINCE = 7
_FLOATS = (DType.F32, DType.F16, DType.BF16)


class Settings(Struct, frozen=True, kw_only=True):
    """One resolved configuration. `is_flash` is whether the attention reads grouped heads without a mask."""

    version: TransformersVersion
    flags: TransformersFlags
    dtype: DType
    attention: str
    is_flash: bool
    page_tokens: int
    memory_percent: float
    max_requests: int
    blocks_per_request: int
    has_graphs: bool
    is_async: bool
    context_len: int
    notes: tuple[str, ...]

    @property
    def element_bytes(self) -> int:
        return self.dtype.bits // 8

    @property
    def io_sets(self) -> int:
        """Sets of input and output tensors: two where a batch is prepared while another runs."""
        return 2 if self.is_async else 1


def resolve(
    model: Model, shape: Geometry, device: Device, version: TransformersVersion, flags: TransformersFlags
) -> Settings:
    """Raises FlagError for an attention or a type that continuous batching does not take."""
    notes: list[str] = []
    if device.vendor == "cpu" and not version.since(HOST_MEMORY_SINCE):
        raise FlagError(
            f"transformers {version} asks no host for its memory: continuous batching on a CPU starts with 5.1",
            flag="device",
            value=device.name,
        )
    attention = _attention(flags, version, device, notes)
    flash = "flash" in attention
    graphs = _graphs(flags, device, flash=flash)
    is_async = flags.use_async_batching
    if is_async is None:
        is_async = graphs and flash and version.rules is not Rules.PAIRED
    context = flags.max_length or model.max_position_embeddings
    if not context:
        raise FlagError(
            f"{model.id} states no longest context; give --max-length", flag="max_length", value=None
        )
    if model.max_position_embeddings and context > model.max_position_embeddings:
        notes.append(
            f"max_length {context} is above the {model.max_position_embeddings} positions of the config"
        )
    page = flags.block_size
    if page is None:
        page = PAGE_TOKENS if version.since(CONFIG_SINCE) else FIRST_PAGE_TOKENS
    return Settings(
        version=version,
        flags=flags,
        dtype=_dtype(model, flags),
        attention=attention,
        is_flash=flash,
        page_tokens=page,
        memory_percent=_share(flags, version, device),
        max_requests=flags.max_requests_per_batch or REQUESTS,
        blocks_per_request=_blocks_per_request(flags, shape, device, flash=flash),
        has_graphs=graphs,
        is_async=is_async,
        context_len=context,
        notes=tuple(notes),
    )


def _attention(
    flags: TransformersFlags, version: TransformersVersion, device: Device, notes: list[str]
) -> str:
    """SDPA unless something else is named. Newer releases take flash attention in its place where its package or
    the kernels package is installed, which nothing here can tell."""
    name = flags.attn_implementation
    if name is None:
        if device.vendor != "cpu" and version.since(SWITCHES_TO_FLASH_SINCE):
            notes.append(
                "attn_implementation is not given: sdpa is planned; where flash-attn or kernels is installed the "
                "library takes flash_attention_2 or 3 itself, which leaves more for the cache"
            )
        return "sdpa"
    plain = name.removeprefix("paged|")
    if plain in ("eager", "sdpa") or "flash" in plain:
        return plain
    raise FlagError(
        f"--attn-implementation {name} has no continuous batching; it is eager, sdpa or a flash implementation",
        flag="attn_implementation",
        value=name,
    )


def _graphs(flags: TransformersFlags, device: Device, *, flash: bool) -> bool:
    if device.vendor == "cpu":
        return False
    return flash if flags.use_cuda_graph is None else flags.use_cuda_graph


def _blocks_per_request(flags: TransformersFlags, shape: Geometry, device: Device, *, flash: bool) -> int:
    """Width of the block table of the decode path: 0 where a layer has a window or the kernel takes no table."""
    if device.vendor == "cpu" or not flash or any(kind.name != FULL for kind in shape.kinds):
        return 0
    given = flags.max_blocks_per_request
    return BLOCKS_PER_REQUEST if given is None else given


def _share(flags: TransformersFlags, version: TransformersVersion, device: Device) -> float:
    if flags.max_memory_percent is not None:
        return flags.max_memory_percent
    if not version.since(SHARE_BY_PROCESSORS_SINCE):
        return 0.8
    if device.vendor == "cpu" and version.since(CPU_SHARE_SINCE):
        return 0.6
    return 0.8 if flags.logits_processors else 0.9


def _dtype(model: Model, flags: TransformersFlags) -> DType:
    found = model.dtype if flags.dtype == "auto" else parse_dtype(flags.dtype)
    if found not in _FLOATS:
        raise FlagError(
            f"--dtype {found.value} is not a type the model runs in", flag="dtype", value=flags.dtype
        )
    return found
