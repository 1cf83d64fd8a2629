"""What stands on a device beside the finished weights while modules are turned into their kernels' layout.

Source: vllm model_executor/model_loader/utils.py (`process_weights_after_loading`, module by module), layers/quantization
(fp8.py: `Fp8OnlineLinearMethod`, whose parameters are on the meta device until their module loads since 0.16; before, the
whole unquantised model is allocated first), model_loader/bitsandbytes_loader.py (each rank's part of a matrix moved to the
device and quantised there).
"""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.engines.device_tensors import Matrix
from vramledger.engines.vllm.settings import Settings
from vramledger.formats.weights import Dense

MODULE_BY_MODULE_SINCE = 16
REPACKED = "largest module held twice while it is repacked"


def load_peak(matrices: Iterable[Matrix], settings: Settings, *, is_online: bool) -> tuple[int, str]:
    """Bytes beyond the finished weights and their formula. `is_online` is whether quantised matrices are made of an
    unquantised checkpoint while it loads."""
    quantised = [
        matrix for matrix in matrices if not isinstance(matrix.format, Dense) and matrix.laid is not None
    ]
    largest = max((matrix.laid.total for matrix in quantised if matrix.laid is not None), default=0)
    if not is_online or not quantised:
        return largest, REPACKED
    dense = [
        settings.dtype.bytes_for(sum(matrix.rows) * matrix.columns * matrix.experts) for matrix in quantised
    ]
    if settings.flags.quantization == "bitsandbytes" or settings.version.since(MODULE_BY_MODULE_SINCE):
        return max(dense), f"largest module before it is quantised, {max(dense)} B"
    held = sum(
        size * matrix.repeat - matrix.laid.total * matrix.repeat
        for size, matrix in zip(dense, quantised, strict=True)
        if matrix.laid is not None
    )
    whole = sum(size * matrix.repeat for size, matrix in zip(dense, quantised, strict=True))
    return held + largest, f"the whole model before it is quantised, {whole} B, and the first module after it"
