"""vLLM's CUDA platform on a machine without a GPU: everything it decides, none of its kernels.

    install("H100")

makes vLLM believe in eight such devices before its first import. Compiled extensions are empty modules,
operators exist by name and refuse to run, streams and events do nothing, and the current device is torch's
meta device. Defaults, attention backends, block sizes, page sizes and tensor shapes are vLLM's own.
"""

from __future__ import annotations

import builtins
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

# Name as the driver reports it, compute capability, bytes as the driver reports them.
DEVICES = {
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 84_974_239_744),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 85_028_765_696),
    "B200": ("NVIDIA B200", (10, 0), 191_504_777_216),
}
EXTENSIONS = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
NAMESPACES = ("_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_vllm_fa2_C", "_vllm_fa3_C")
FLASH_ATTENTION = "vllm.vllm_flash_attn"
FUSED_REDUCE = "vllm.model_executor.kernels.linear.cute_dsl.gemm_rs_ar"  # needs a compiler package


def install(device: str) -> None:
    """Before vLLM is imported."""
    name, capability, total = DEVICES[device]
    for extension in EXTENSIONS:
        module = ModuleType(extension)
        module.__spec__ = ModuleSpec(extension, None)
        sys.modules[extension] = module
    fused: Any = ModuleType(FUSED_REDUCE)
    fused.get_gemm_rs_ar = lambda: SimpleNamespace(
        can_run=lambda *_: False, warn_incompatible_projection=lambda: None
    )
    fused.maybe_init_gemm_rs_ar = lambda *_, **__: None
    sys.modules[FUSED_REDUCE] = fused
    _find_flash_attention()
    torch: Any = import_module("torch")
    _operators_by_name(torch, capability)
    torch.cuda.Event = torch.cuda.Stream = _Nothing
    torch.cuda.current_stream = _Nothing
    imports: Any = import_module("vllm.utils.import_utils")
    imports.has_deep_gemm = lambda: True  # the CUDA wheels bring it along
    triton: Any = import_module("vllm.triton_utils")
    triton.triton.Config = _KernelConfig
    triton.HAS_TRITON = True  # decides between the model runners
    platforms: Any = import_module("vllm.platforms")
    cuda: Any = import_module("vllm.platforms.cuda")
    interface: Any = import_module("vllm.platforms.interface")

    class StandIn(cuda.NonNvmlCudaPlatform):  # type: ignore[misc]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return interface.DeviceCapability(*capability)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return name

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return total

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

        @classmethod
        def device_count(cls) -> int:
            return 8

        @classmethod
        def current_device(cls) -> Any:
            return torch.device("meta")

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

    platforms._current_platform = StandIn()


def on_meta() -> Any:
    """A context in which tensors asked for on a GPU lie on the meta device."""
    mode: Any = import_module("torch.overrides").TorchFunctionMode
    device_type: Any = import_module("torch").device

    class OnMeta(mode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(kwargs or {})
            if "device" in given and given["device"] is not None and "cuda" in str(given["device"]):
                given["device"] = "meta"
            args = tuple(
                device_type("meta") if isinstance(arg, device_type) and arg.type == "cuda" else arg
                for arg in args
            )
            return function(*args, **given)

    return OnMeta()


class _Nothing:
    """A stream or an event."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass


class _KernelConfig:
    """triton.Config where Triton is absent."""

    def __init__(
        self, kwargs: dict[str, Any] | None = None, num_warps: int = 4, num_stages: int = 1, **_: Any
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs or {}, num_warps, num_stages


class _Operator:
    """A compiled operator: says what the device's kernels support, runs nothing."""

    def __init__(self, name: str, capability: tuple[int, int]) -> None:
        self.name, self.capability = name, capability

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __call__(self, *_: Any, **__: Any) -> bool:
        if "supports" not in self.name:
            raise RuntimeError(f"{self.name} has no kernel here")
        if "fp4" in self.name:
            return self.capability >= (10, 0)
        if "block_fp8" in self.name or "group_gemm" in self.name:
            return self.capability >= (9, 0)
        return self.capability >= (8, 9)


def _operators_by_name(torch: Any, capability: tuple[int, int]) -> None:
    namespace: Any = import_module("torch._ops")._OpNamespace
    library: Any = import_module("torch.library").Library
    found = namespace.__getattr__

    def lookup(self: Any, name: str) -> Any:
        try:
            return found(self, name)
        except AttributeError:
            if name.startswith("__") or self.name not in NAMESPACES:
                raise
            return _Operator(name, capability)

    namespace.__getattr__ = lookup
    for method in ("_register_fake", "impl"):
        setattr(library, method, _unless_missing(getattr(library, method)))


def _unless_missing(original: Any) -> Any:
    def register(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except RuntimeError:  # a shape rule for an operator that is not compiled here
            return None

    return register


def _find_flash_attention() -> None:
    """`from . import _vllm_fa2_C` looks in the package, not in sys.modules."""
    original = builtins.__import__

    def find(name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        package = globals_.get("__package__") if globals_ else None
        if level == 1 and package == FLASH_ATTENTION and fromlist and fromlist[0].endswith("_C"):
            return SimpleNamespace(**{fromlist[0]: None})
        return original(name, globals_, locals_, fromlist, level)

    hook: Any = builtins
    hook.__import__ = find
