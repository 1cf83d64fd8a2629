"""What a quantised matrix's kernel takes beside the matrix in one product.

Source: vllm layers/quantization (awq.py: from 256 tokens on the matrix is unpacked and multiplied; gguf.py: types without
a kernel of their own; bitsandbytes.py) and csrc/quantization (gptq/q_gemm.cu: room for the unpacked matrix in each call).
"""

from __future__ import annotations

from vramledger.engines.vllm.capability import capability, has_fp8_units
from vramledger.engines.vllm.settings import Settings
from vramledger.formats.weights import Bnb4, Bnb8, Fp8, Ggml, GroupInt, Nvfp4, WeightFormat
from vramledger.hardware.catalogue import Device

UNPACKED_FROM_TOKENS = 256
MARLIN_TURING_SINCE = 16
MARLIN_BITS = (4, 8)
ONE_METHOD_SINCE = 24
"""auto_awq replaced the two AWQ methods that `--quantization` told apart."""


def group_int_kernel(bits: int, method: str, settings: Settings, device: Device) -> str:
    """The kernel of 2- to 8-bit integers: "marlin", "awq" or "exllama" ("" where these rules speak of none)."""
    asked, version = settings.flags.quantization or "", settings.version
    oldest = 75 if version.since(MARLIN_TURING_SINCE) else 80
    fits = bits in MARLIN_BITS and device.vendor == "nvidia" and capability(device) >= oldest
    if method.startswith("awq"):
        named = asked == "awq" and not version.since(ONE_METHOD_SINCE)
        return "marlin" if fits and not named else "awq"
    if method.startswith("gptq"):
        return "marlin" if fits and asked != "gptq" else "exllama"
    return "marlin" if fits else ""


def unpacked_bytes(
    stored: WeightFormat, elements: int, method: str, settings: Settings, device: Device
) -> int:
    """Bytes of the unpacked copy that a product with this matrix makes, for AWQ of `UNPACKED_FROM_TOKENS` tokens or
    more; 0 for kernels that unpack in registers."""
    match stored:
        case Bnb4() | Bnb8():
            return settings.dtype.bytes_for(elements)
        case GroupInt():
            kernel = group_int_kernel(stored.bits, method, settings, device)
            return settings.dtype.bytes_for(elements) if kernel in ("awq", "exllama") else 0
        case Ggml() if stored.type.name.startswith("IQ"):
            return settings.dtype.bytes_for(elements)
        case _:
            return 0


def matrix_kernel(stored: WeightFormat, method: str, settings: Settings, device: Device) -> str:
    """The library that multiplies with the matrix, where it keeps scratch of its own: "marlin", "flashinfer", or ""."""
    match stored:
        case GroupInt():
            return group_int_kernel(stored.bits, method, settings, device)
        case Nvfp4():
            return "flashinfer" if device.architecture == "blackwell" else "marlin"
        case Fp8():
            return "" if has_fp8_units(device) else "marlin"
        case _:
            return ""
