"""llama-server's command line, long and short spellings.

Source: llama.cpp common/arg.cpp (names, aliases, `--no-` forms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramledger.engines.flag_table import read_flags, refuse_parallel
from vramledger.engines.llamacpp.flags import CACHE_TYPES, SPLIT_MODES, LlamaFlags
from vramledger.engines.option import Option, OptionKind
from vramledger.engines.option import option as _option
from vramledger.engines.requests import REQUEST_OPTIONS, take_requests

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.checkpoint import Checkpoint

_CONTEXT, _PLACE, _CACHE, _FIT, _HOST, _MODEL = (
    "Context and batch", "Placement", "KV cache", "Fit", "Host memory", "Model files",
)  # fmt: skip
COUNT, SIGNED, SWITCH, TEXT = OptionKind.COUNT, OptionKind.SIGNED, OptionKind.SWITCH, OptionKind.TEXT


_UNKNOWN = ("prompt_logprobs", "beams", "prompt_embeds")
"""What llama-server does for no request."""

OPTIONS: tuple[Option, ...] = (
    _option("ctx_size", COUNT, _CONTEXT, "Cells of the cache over all slots; 0 or unset: the model's, or what fits.", "-c"),
    _option("parallel", SIGNED, _CONTEXT, "Slots; -1: four over one unified pool.", "-np"),
    _option("kv_unified", SWITCH, _CONTEXT, "One pool for all slots, which may over-commit it.", "-kvu"),
    _option("kv_unified_per_slot", COUNT, _CONTEXT, "Longest sequence of a slot; sizes the pool where -c does not."),
    _option("batch_size", COUNT, _CONTEXT, "Tokens submitted at once at most.", "-b"),
    _option("ubatch_size", COUNT, _CONTEXT, "Tokens computed at once at most.", "-ub"),
    _option("n_outputs_max", COUNT, _CONTEXT, "Rows of logits planned for; the newest server plans one a slot."),
    _option("embedding", SWITCH, _CONTEXT, "Serve embeddings.", "--embeddings"),
    _option("gpu_layers", TEXT, _PLACE, "Layers on devices, the output counted: a number, auto or all.", "-ngl", "--n-gpu-layers"),
    _option("gpus", COUNT, _PLACE, "Devices of the planned kind; -ts with several entries says it too."),
    _option("tensor_split", TEXT, _PLACE, "Proportions over devices, such as 3,1.", "-ts"),
    _option("split_mode", TEXT, _PLACE, "How devices share.", "-sm", choices=(*SPLIT_MODES, "tensor")),
    _option("main_gpu", COUNT, _PLACE, "The device of --split-mode none and of what rows do not cover.", "-mg"),
    _option("cpu_moe", SWITCH, _PLACE, "Experts of all layers stay on the host.", "-cmoe"),
    _option("n_cpu_moe", COUNT, _PLACE, "Experts of the first N layers stay on the host.", "-ncmoe"),
    _option("n_cpu_ffn", COUNT, _PLACE, "Dense MLPs of the first N layers stay on the host.", "-ncffn"),
    _option("override_tensor", TEXT, _PLACE, "PATTERN=BUFFER,... such as exps=CPU.", "-ot"),
    _option("op_offload", SWITCH, _PLACE, "Large batches of host layers are computed on a device."),
    _option("flash_attn", TEXT, _CACHE, "Flash attention.", "-fa", choices=("on", "off", "auto")),
    _option("cache_type_k", TEXT, _CACHE, f"Type of keys: {', '.join(CACHE_TYPES)}.", "-ctk"),
    _option("cache_type_v", TEXT, _CACHE, "Type of values; quantised ones need flash attention.", "-ctv"),
    _option("swa_full", SWITCH, _CACHE, "Windowed layers cache the whole context."),
    _option("kv_offload", SWITCH, _CACHE, "The cache lies with its layer; --no-kv-offload keeps it on the host."),
    _option("fit", TEXT, _FIT, "Adjust unset context and placement to free memory.", "-fit", choices=("on", "off")),
    _option("fit_ctx", COUNT, _FIT, "Least context that fitting goes down to.", "-fitc"),
    _option("fit_target", TEXT, _FIT, "MiB left free on each device.", "-fitt"),
    _option("mmap", SWITCH, _HOST, "Host weights are a mapping of the file."),
    _option("mlock", SWITCH, _HOST, "Host weights are locked in memory."),
    _option("repack", SWITCH, _HOST, "Host weights may be repacked for the CPU."),
    _option("cache_ram", SIGNED, _HOST, "MiB of finished prompts kept on the host; -1: no limit.", "-cram"),
    _option("ctx_checkpoints", COUNT, _HOST, "Snapshots a slot of windows and states on the host.", "--swa-checkpoints"),
    _option("ftype", TEXT, _MODEL, "File type planned for where MODEL is no GGUF: Q4_K_M, Q8_0, F16, ...", "--gguf-type"),
    _option("lora", TEXT, _MODEL, "Adapters: GGUF files, comma between."),
    _option("mmproj", TEXT, _MODEL, "GGUF file of the projector and its encoder."),
    _option("mmproj_offload", SWITCH, _MODEL, "The projector lies on a device."),
    *(option for option in REQUEST_OPTIONS if option.name not in _UNKNOWN),
)  # fmt: skip

_SHORT = {
    "c": "ctx_size", "np": "parallel", "kvu": "kv_unified", "b": "batch_size", "ub": "ubatch_size", "ngl": "gpu_layers",
    "n_gpu_layers": "gpu_layers", "ts": "tensor_split", "sm": "split_mode", "mg": "main_gpu", "fa": "flash_attn",
    "ctk": "cache_type_k", "ctv": "cache_type_v", "ot": "override_tensor", "gguf_type": "ftype", "n_ctx": "ctx_size",
    "n_parallel": "parallel", "cmoe": "cpu_moe", "ncmoe": "n_cpu_moe", "cram": "cache_ram",
}  # fmt: skip
_ABSENT = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}


def plan_with(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """The plan of one server under flags by name; see `engines.Engine`."""
    flags = flags_from(values)
    from vramledger.engines.llamacpp.planner import plan
    from vramledger.engines.llamacpp.version import NEWEST, parse_version

    build = NEWEST if version is None else parse_version(version)
    return plan(checkpoint, device, build=build, flags=flags, concurrency=concurrency, remedies=remedies)


def flags_from(values: Mapping[str, object]) -> LlamaFlags:
    """Flags by name, as text or as values. Raises FlagError for what llama.cpp does not have or take."""
    refuse_parallel(values, _ABSENT, "llama.cpp", "; devices are --gpus and -ts")
    kept = {
        name: str(value)
        if name in ("gpu_layers", "ngl", "n_gpu_layers", "tensor_split", "ts", "fit_target")
        and value is not None
        else value
        for name, value in values.items()
        if name not in _ABSENT
    }
    found: dict[str, Any] = read_flags(kept, OPTIONS, _SHORT, "llamacpp")
    take_requests(found)
    return LlamaFlags(**found)
