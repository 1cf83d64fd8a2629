"""Which all-to-all back end a plan runs, and what follows from it before anything has a size.

Source: vllm envs.py (VLLM_ALL2ALL_BACKEND, up to 0.12), config/parallel.py (All2AllBackend,
use_sequence_parallel_moe, use_batched_dp_moe), fused_moe/config.py (FusedMoEParallelConfig) by version.
"""

from __future__ import annotations

from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError

GATHER = "allgather_reducescatter"
NAIVE = "naive"
BATCHED = ("pplx", "deepep_low_latency", "nixl_ep")
CHUNK_TOKENS = 256  # VLLM_MOE_DP_CHUNK_SIZE up to 0.19, the default batch of batched back ends since 0.20

# First and last minor release that has a back end of its own under the name.
_BACKENDS: dict[str, tuple[int, int | None]] = {
    NAIVE: (9, 19),
    "pplx": (9, 17),
    "deepep_high_throughput": (9, None),
    "deepep_low_latency": (9, None),
    GATHER: (11, None),
    "flashinfer_all2allv": (11, None),
    "mori": (16, 22),
    "nixl_ep": (18, None),
    "flashinfer_nvlink_two_sided": (18, None),
    "flashinfer_nvlink_one_sided": (18, None),
    "mori_high_throughput": (23, None),
    "mori_low_latency": (23, None),
    "deepep_v2": (26, None),
    "moonep": (31, None),
}
BACKEND_NAMES = tuple(_BACKENDS)

# Back ends whose tokens are cut over the tensor-parallel group on their way to the experts, by first release.
_SEQUENCE_PARALLEL = {
    GATHER: 11, NAIVE: 11, "deepep_high_throughput": 11, "deepep_low_latency": 11, "mori": 16, "nixl_ep": 18,
    "mori_high_throughput": 23, "mori_low_latency": 23, "flashinfer_nvlink_one_sided": 29, "deepep_v2": 31,
}  # fmt: skip

# Model types whose shared experts then take whole columns, by first release (models/deepseek_v2.py, llama4.py,
# nemotron_h.py, qwen2_moe.py: disable_tp=is_sequence_parallel).
_WHOLE_SHARED = {
    "deepseek_v2": 11, "deepseek_v3": 11, "deepseek_v32": 11, "deepseek_vl_v2": 11, "kimi_k2": 11, "kimi_k25": 11,
    "glm_moe_dsa": 11, "glm4_moe_lite": 11, "llama4": 11, "llama4_text": 11, "nemotron_h": 12, "qwen3_next": 20,
    "qwen3_5_moe": 20, "deepseek_v4": 20,
}  # fmt: skip


def all2all_backend(flags: VllmFlags, version: VllmVersion) -> str:
    """The back end that runs: the flag's, else the version's default.

    Names that a version has dropped stand for the default there, as its own warning says. Raises FlagError for
    a name that it does not have.
    """
    default = GATHER if version.since(11) else NAIVE
    asked = flags.all2all_backend
    if asked is None:
        return default
    span = _BACKENDS.get(asked)
    if span is None:
        raise FlagError(
            f"--all2all-backend {asked} is not one of {', '.join(BACKEND_NAMES)}",
            flag="all2all_backend",
            value=asked,
        )
    first, last = span
    if not version.since(first):
        raise FlagError(
            f"--all2all-backend {asked}: vllm {version} has none of that name; the first release read that does "
            f"is 0.{first}",
            flag="all2all_backend",
            value=asked,
        )
    return default if last is not None and version.since(last + 1) else asked


def dispatches(plan: ParallelPlan, version: VllmVersion) -> bool:
    """Whether tokens travel to experts of other ranks: with expert parallelism over data-parallel ranks, since
    0.26 over the ranks a prompt is cut over too. Within a tensor-parallel group every rank has every token."""
    if not plan.enable_expert_parallel:
        return False
    return plan.dp > 1 or (plan.pcp > 1 and version.since(26))


def is_sequence_parallel(plan: ParallelPlan, flags: VllmFlags, version: VllmVersion) -> bool:
    """Whether each rank of a tensor-parallel group takes its share of the tokens to the experts."""
    if plan.tp == 1 or plan.dp == 1 or not plan.enable_expert_parallel:
        return False
    first = _SEQUENCE_PARALLEL.get(all2all_backend(flags, version))
    return first is not None and version.since(first)


def keeps_shared_whole(model_type: str, plan: ParallelPlan, flags: VllmFlags, version: VllmVersion) -> bool:
    """Whether a rank holds all columns of the shared experts, which see its own tokens only."""
    first = _WHOLE_SHARED.get(model_type)
    return first is not None and version.since(first) and is_sequence_parallel(plan, flags, version)


def batched_default_tokens(plan: ParallelPlan, flags: VllmFlags, version: VllmVersion) -> int | None:
    """max_num_batched_tokens where no flag gives it and experts take padded batches (0.20 and newer)."""
    if not version.since(20) or not plan.enable_expert_parallel or plan.dp == 1:
        return None
    return CHUNK_TOKENS if all2all_backend(flags, version) in ("deepep_low_latency", "nixl_ep") else None


def check_eplb(plan: ParallelPlan, flags: VllmFlags) -> None:
    """Raises FlagError for load balancing that the engine refuses: without expert parallelism over more than one
    rank, or redundant experts without load balancing (config/parallel.py, from the first release that has them)."""
    if flags.num_redundant_experts and not flags.enable_eplb:
        raise FlagError(
            f"--num-redundant-experts {flags.num_redundant_experts} needs --enable-eplb, which places the copies",
            flag="num_redundant_experts",
            value=flags.num_redundant_experts,
        )
    if flags.enable_eplb and plan.ep == 1:
        raise FlagError(
            "--enable-eplb needs --enable-expert-parallel over more than one rank",
            flag="enable_eplb",
            value=True,
        )
