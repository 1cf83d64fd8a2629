"""The element type a model runs in: `--dtype`, or what a version makes of the checkpoint's own on a device.

Source: vllm config/model.py (to 0.9 config.py), `_resolve_auto_dtype` and `_get_and_verify_dtype`; platforms/cuda.py,
`supported_dtypes` and `check_if_supports_dtype`.
"""

from __future__ import annotations

from vramledger.engines.vllm.capability import known_capability
from vramledger.engines.vllm.flags import VllmFlags
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.hardware.catalogue import Device
from vramledger.models.model import Model

BF16_SINCE_CAPABILITY = 80
NOT_IN_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Model types that 0.9.2 and newer refuse to run in float16 (`_FLOAT16_NOT_SUPPORTED_MODELS`)."""

RESOLVED_SINCE = (9, 2)
_COMPUTE = (DType.F16, DType.BF16, DType.F32)


def compute_dtype(model: Model, device: Device, version: VllmVersion, flags: VllmFlags) -> DType:
    """Raises FlagError for a type that is none to compute in, or that the device or the model does not run in."""
    if flags.dtype not in ("auto", ""):
        dtype = parse_dtype(flags.dtype)
        if dtype not in _COMPUTE:
            raise FlagError(f"--dtype {flags.dtype} is not a compute type", flag="dtype", value=flags.dtype)
        if dtype is DType.BF16 and not _has_bf16(device):
            raise _no_bf16(flags.dtype, device)
        if dtype is DType.F16 and version.since(*RESOLVED_SINCE) and model.model_type in NOT_IN_FLOAT16:
            raise FlagError(
                f"--dtype {flags.dtype}: vllm {version} does not run {model.model_type} in float16",
                flag="dtype",
                value=flags.dtype,
            )
        return dtype
    if version.since(*RESOLVED_SINCE):
        return _resolved(model, device)
    wanted = _sixteen_bit(model, version) if model.dtype is DType.F32 else model.dtype
    if wanted is DType.BF16 and not _has_bf16(device):
        if not version.since(9):
            raise _no_bf16("auto", device)
        return DType.F16
    return wanted


def _resolved(model: Model, device: Device) -> DType:
    """A checkpoint's own type where device and model run in it, else the first that both do. float32 becomes that
    first one too, float16 for pooling models."""
    supported = [
        dtype
        for dtype in (DType.BF16, DType.F16, DType.F32)
        if (dtype is not DType.BF16 or _has_bf16(device))
        and (dtype is not DType.F16 or model.model_type not in NOT_IN_FLOAT16)
    ]
    preferred = DType.F16 if model.is_pooling and DType.F16 in supported else supported[0]
    if model.dtype is DType.F32:
        return preferred
    return model.dtype if model.dtype in supported or model.dtype not in _COMPUTE else preferred


def _sixteen_bit(model: Model, version: VllmVersion) -> DType:
    """What float32 became up to 0.9.1: float16, but bfloat16 for Gemma before 0.8.3."""
    if model.model_type in BFLOAT16_GEMMA and not version.since(8, 3):
        return DType.BF16
    return DType.F16


BFLOAT16_GEMMA = frozenset({"gemma2", "gemma3", "gemma3_text"})


def _has_bf16(device: Device) -> bool:
    capability = known_capability(device)
    return capability is None or capability >= BF16_SINCE_CAPABILITY


def _no_bf16(stated: str, device: Device) -> FlagError:
    own = ", the checkpoint's own," if stated == "auto" else ""
    return FlagError(
        f"--dtype {stated}: bfloat16{own} needs compute capability 8.0, and {device.name} has "
        f"{device.compute_capability}; give --dtype half",
        flag="dtype",
        value=stated,
    )
