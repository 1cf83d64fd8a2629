"""What a user of llama.cpp sets, as typed values; None is a flag not given."""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.engines.option import against_rule as _bad
from vramledger.engines.requests import NO_REQUESTS, Requests

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SPLIT_MODES = ("none", "layer", "row")
MOST_SLOTS = 256
MOST_DEVICES = 16
# Below it a sum is 0 in single precision, in which the engine adds.
_LEAST_SHARE = 1e-30
MOST_OVERRIDES = 4096


class LlamaFlags(Struct, frozen=True, kw_only=True):
    """llama-server's flags under its own names (common/arg.cpp). Raises FlagError for values out of range.

    `gpus` is how many devices of the kind that is planned for; -ts with several entries says it too. Sizes of
    `fit_target` and `cache_ram` are MiB, as llama.cpp has them; `requests` are no flags but what is asked of the server.
    """

    ctx_size: int | None = None
    parallel: int | None = None
    kv_unified: bool | None = None
    kv_unified_per_slot: int | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    n_outputs_max: int | None = None
    gpu_layers: str | None = None
    gpus: int | None = None
    tensor_split: str | None = None
    split_mode: str | None = None
    main_gpu: int | None = None
    cpu_moe: bool = False
    n_cpu_moe: int | None = None
    n_cpu_ffn: int | None = None
    override_tensor: str | None = None
    flash_attn: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    swa_full: bool = False
    kv_offload: bool = True
    op_offload: bool = True
    mmap: bool = True
    mlock: bool = False
    repack: bool = True
    fit: str | None = None
    fit_ctx: int | None = None
    fit_target: str | None = None
    cache_ram: int | None = None
    ctx_checkpoints: int | None = None
    embedding: bool = False
    lora: str | None = None
    mmproj: str | None = None
    mmproj_offload: bool = True
    ftype: str | None = None
    requests: Requests = NO_REQUESTS

    def __post_init__(self) -> None:
        for name, least, most in (
            ("ctx_size", 0, 2**31), ("batch_size", 1, 2**24), ("ubatch_size", 1, 2**24), ("n_outputs_max", 1, 2**24),
            ("gpus", 0, MOST_DEVICES), ("n_cpu_moe", 0, 4096), ("n_cpu_ffn", 0, 4096), ("kv_unified_per_slot", 1, 2**31),
            ("fit_ctx", 1, 2**31), ("ctx_checkpoints", 0, 4096), ("cache_ram", -1, 2**40), ("main_gpu", 0, MOST_DEVICES),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise _bad(name, value, f"must be from {least} to {most}")
        if self.parallel is not None and self.parallel != -1 and not 1 <= self.parallel <= MOST_SLOTS:
            raise _bad("parallel", self.parallel, f"must be -1 (auto) or from 1 to {MOST_SLOTS}")
        for name in ("cache_type_k", "cache_type_v"):
            value = getattr(self, name)
            if value is not None and value.lower() not in CACHE_TYPES:
                raise _bad(name, value, f"must be one of {', '.join(CACHE_TYPES)}")
        if self.gpus is not None and len(self.shares()) > self.gpus:
            raise _bad(
                "tensor_split", self.tensor_split, f"has more proportions than --gpus {self.gpus} devices"
            )
        if self.split_mode == "tensor":
            raise _bad("split_mode", self.split_mode, "has no rules here; layer, row and none have")
        if self.split_mode is not None and self.split_mode not in SPLIT_MODES:
            raise _bad("split_mode", self.split_mode, f"must be one of {', '.join(SPLIT_MODES)}")

    def shares(self) -> tuple[float, ...]:
        """The proportions of -ts, empty where it is not given."""
        if self.tensor_split is None:
            return ()
        try:
            found = tuple(float(part) for part in re.split(r"[,/]", self.tensor_split))
        except ValueError:
            raise _bad("tensor_split", self.tensor_split, "must be proportions such as 3,1") from None
        if (
            not all(0 <= share < 1e12 for share in found)
            or sum(found) < _LEAST_SHARE
            or len(found) > MOST_DEVICES
        ):
            raise _bad(
                "tensor_split", self.tensor_split, f"must be at most {MOST_DEVICES} proportions, not all 0"
            )
        return found

    def layers_offloaded(self) -> int | None:
        """-ngl as a number: -1 for auto, -2 for all, None where it is not given."""
        text = (self.gpu_layers or "").strip().lower()
        if not text:
            return None
        if text in ("auto", "all"):
            return {"auto": -1, "all": -2}[text]
        if re.fullmatch(r"-?\d{1,6}", text) is None:
            raise _bad("gpu_layers", self.gpu_layers, "must be a whole number, auto or all")
        return int(text)

    def margins_mib(self) -> tuple[int, ...]:
        """--fit-target of each device; one value stands for all."""
        text = self.fit_target or "1024"
        parts = text.split(",")
        if len(parts) > MOST_DEVICES or any(re.fullmatch(r"\d{1,9}", part.strip()) is None for part in parts):
            raise _bad("fit_target", text, "must be MiB such as 1024 or 1024,512")
        return tuple(int(part) for part in parts)

    def overrides(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        """Patterns of tensor names and the buffer each sends them to, in order: the first match decides.

        Raises FlagError for what is not NAME=BUFFER, or a pattern that is not a regular expression or is too long.
        """
        found: list[tuple[re.Pattern[str], str]] = []
        for part in (self.override_tensor or "").split(","):
            if not part:
                continue
            pattern, equals, buffer = part.rpartition("=")
            if not equals or not pattern or len(pattern) > 200 or len(found) >= MOST_OVERRIDES:
                raise _bad("override_tensor", part, "must be PATTERN=BUFFER such as exps=CPU")
            try:
                found.append((re.compile(pattern), buffer.strip()))
            except (re.error, RecursionError, OverflowError):
                raise _bad("override_tensor", part, "is no regular expression") from None
        experts = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
        if self.cpu_moe:
            found.append((re.compile(experts), "CPU"))
        found.extend((re.compile(rf"blk\.{layer}{experts}"), "CPU") for layer in range(self.n_cpu_moe or 0))
        dense = r"\.ffn_(up|down|gate)\."
        found.extend((re.compile(rf"blk\.{layer}{dense}"), "CPU") for layer in range(self.n_cpu_ffn or 0))
        return tuple(found)
