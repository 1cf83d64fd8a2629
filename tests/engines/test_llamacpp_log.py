"""llama.cpp's wordings build by build, Ollama's, and what a start-up's lines measure.

recorded/logs/llamacpp-b11549-* are what llama.cpp's server of b11549 printed on a CPU (the wheel xllamacpp 2026.10.11549): Gemma-3 270M,
a tiny Llama whose unified cache was exhausted, and a cache that a limit of the address space refused. Lines that say nothing
of memory are left out. Other lines are worded as the sources of the build named beside them word them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from log_support import measure, observed, values
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import Measurement
from vramledger.observation import Event
from vramledger.units import MIB

RECORDED = Path(__file__).parent / "recorded" / "logs"


def recorded(name: str) -> Measurement:
    path = RECORDED / f"llamacpp-b11549-{name}.log"
    return measure("llamacpp", path.read_text().splitlines(), path.name)


def two(mib: float) -> ByteRange:
    """A print with two decimals."""
    expected, half = round(mib * 100) * MIB // 100, MIB // 200
    return ByteRange(expected - half, expected, expected + half)


def sizes(found: Measurement) -> dict[str, float]:
    return {figure.name: round(figure.bytes.expected / MIB, 2) for figure in found.figures}


def test_a_recorded_start_up_of_windows_states_every_buffer() -> None:
    found = recorded("gemma3-270m")
    assert sizes(found) == {
        "CPU_Mapped model buffer": 235.16,
        "CPU_REPACK model buffer": 12.66,
        "CPU output buffer": 4.0,
        "CPU KV buffer": 24.0,
        "CPU windowed KV buffer": 60.0,
        "CPU compute buffer": 21.28,
    }
    assert {figure.ranks for figure in found.figures} == {(0,)}
    assert {(pool.kind, pool.tokens.expected) for pool in found.pools if pool.tokens} == {
        ("", 4 * 2048),
        ("sliding window", 4 * 1024),
    }
    assert (found.model, found.architecture) == ("models/gemma3-270m.gguf", "gemma3")
    settings = dict(found.settings)
    assert (settings["n_ctx"], settings["n_seq_max"], settings["kv_unified"]) == (8192, 4, False)
    assert settings["file_type"] == "Q4_K - Medium"
    assert found.engine_version is None
    cache = next(figure for figure in found.figures if figure.name == "CPU KV buffer")
    assert cache.evidence.source.startswith("llamacpp-b11549-gemma3-270m.log:")
    assert cache.evidence.source.endswith(", llamacpp")


def test_a_recorded_shortage_of_cells_is_told_step_by_step() -> None:
    path = RECORDED / "llamacpp-b11549-unified-exhausted.log"
    found = list(observed("llamacpp", path.read_text().splitlines(), path.name))
    tried = [item.values["batch_tokens"] for item in found if item.event is Event.PREEMPTION]
    assert tried == [1024, 512, 256, 128]
    assert any(item.event is Event.ADMITTED and item.values["prompt_tokens"] == 128 for item in found)
    assert dict(recorded("unified-exhausted").settings)["kv_unified"] is True


def test_a_start_up_that_failed_states_what_it_held_before() -> None:
    found = recorded("alloc-failure")
    assert sizes(found) == {"CPU_Mapped model buffer": 92.1, "CPU output buffer": 0.19}
    assert found.pools == ()


GPU = (
    "build: 6565 (0123abc) with cc (Debian) for x86_64-linux-gnu",
    "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23306 MiB free",
    "llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 3090) (0000:02:00.0) - 23990 MiB free",
    "llama_model_loader: loaded meta data with 33 key-value pairs and 291 tensors from m/a.gguf (version GGUF V3 (latest))",
    "print_info: arch                  = llama",
    "load_tensors: offloading 32 repeating layers to GPU",
    "load_tensors: offloaded 33/33 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =  2000.00 MiB",
    "load_tensors:        CUDA1 model buffer size =  2400.00 MiB",
    "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
    "llama_context: constructing llama_context",
    "llama_context: n_seq_max     = 1",
    "llama_context: n_ctx         = 8192",
    "llama_context:  CUDA_Host  output buffer size =     0.49 MiB",
    "llama_kv_cache:      CUDA0 KV buffer size =   544.00 MiB",
    "llama_kv_cache:      CUDA1 KV buffer size =   480.00 MiB",
    "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB",
    "llama_context:      CUDA0 compute buffer size =   368.01 MiB",
    "llama_context:      CUDA1 compute buffer size =   258.50 MiB",
    "llama_context:  CUDA_Host compute buffer size =    80.02 MiB",
    "llama_adapter_lora_init_impl:      CUDA0 LoRA buffer size =    64.00 MiB",
    "clip_ctx: CLIP using CUDA0 backend",
    "load_hparams: model size:         853.16 MiB",
    "alloc_compute_meta:      CUDA0 compute buffer size =   102.51 MiB",
    "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
    "srv        update:  - cache state: 2 prompts, 850.100 MiB (limits: 8192.000 MiB, 131072 tokens, 131072 est)",
    "llama_memory_breakdown_print: | memory breakdown [MiB] | total   free     self   model   context   compute    unaccounted |",
    "llama_memory_breakdown_print: |   - CUDA0 (RTX 3090)   | 24575 = 1057 + (21465 = 20609 +     397 +     458) +        2053 |",
    "llama_memory_breakdown_print: |   - Host               |                 30956 = 30940 +       0 +      16                |",
)  # fmt: skip


def test_devices_are_ranks_and_the_host_is_the_host_s() -> None:
    found = measure("llamacpp", GPU)
    by_name = {figure.name: figure for figure in found.figures}
    assert by_name["CUDA0 KV buffer"].ranks == (0,)
    assert by_name["CUDA1 model buffer"].ranks == (1,)
    assert by_name["CUDA0 LoRA buffer"].owners == (Owner.ADAPTERS,)
    assert {name for name, figure in by_name.items() if figure.on_host} == {
        "CPU_Mapped model buffer",
        "CUDA_Host output buffer",
        "CUDA_Host compute buffer",
        "prompt cache",
    }
    assert by_name["CUDA0 projector buffer"].ranks == (0,)
    assert by_name["CUDA0 projector buffer"].entries == ("projector and encoder",)
    assert by_name["prompt cache"].bytes.expected == 850 * MIB + MIB // 10
    assert found.engine_version == "b6565"
    assert found.device == "NVIDIA GeForce RTX 3090"
    assert dict(found.settings)["offloaded_layers"] == "33/33"


def test_the_memory_table_keeps_four_values_apart() -> None:
    found = measure("llamacpp", GPU)
    before = [state for state in found.allocator if state.point == "before the load"]
    assert [state.ranks for state in before] == [(0,), (1,)]
    (table,) = [state for state in found.allocator if state.point == "memory table"]
    whole = (table.device_total_bytes, table.device_free_bytes, table.allocated_bytes, table.outside_bytes)
    assert [size.low // MIB for size in whole if size] == [24575, 1057, 21465, 2053]
    assert table.reserved_bytes is None and table.pool_free_bytes is None


def test_a_table_of_a_dry_run_measures_no_use() -> None:
    lines = (
        "common_memory_breakdown_print: |   - CUDA0 (RTX 5060 Ti) | 15841 = 15630 + (15302 = 14736 +      72 +     493) + 17592186029324 |",
        "llama_model_loader: loaded meta data with 1 key-value pairs and 2 tensors from a.gguf (version GGUF V3 (latest))",
    )
    (state,) = measure("llamacpp", lines).allocator
    assert state.point == "memory table of a dry run"
    assert state.allocated_bytes is None and state.outside_bytes is None
    assert state.device_free_bytes is not None and state.device_free_bytes.low == 15630 * MIB


def test_unaccounted_memory_below_zero_is_unknown() -> None:
    lines = ("load_tensors:  CUDA0 model buffer size =  10.00 MiB", "common_memory_breakdown_print: |   - CUDA0 (X) | 15841 = 15630 + (15302 = 14736 +      72 +     493) + 17592186029324 |")  # fmt: skip
    (state,) = measure("llamacpp", lines).allocator
    assert state.allocated_bytes is not None
    assert state.outside_bytes is None


def test_a_draft_model_is_beside_the_served_one() -> None:
    draft = (
        "llama_model_loader: loaded meta data with 3 key-value pairs and 9 tensors from m/draft.gguf (version GGUF V3 (latest))",
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB",
        "llama_context: constructing llama_context",
        "llama_kv_cache:      CUDA0 KV buffer size =   10.00 MiB",
        "llama_context:      CUDA0 compute buffer size =   20.00 MiB",
    )
    ready = GPU.index(next(line for line in GPU if "listening" in line))
    found = measure("llamacpp", (*GPU[:ready], *draft, *GPU[ready:]))
    assert found.model == "m/a.gguf"
    assert sizes(found)["CUDA0 model buffer"] == 2000.0
    assert sizes(found)["draft model: CUDA0 KV buffer"] == 10.0
    assert dict(found.settings)["n_ctx"] == 8192


def test_a_model_loaded_after_another_was_ready_is_the_last_start_up() -> None:
    again = [line.replace("m/a.gguf", "m/b.gguf").replace("2000.00", "1500.00") for line in GPU[3:]]
    found = measure("llamacpp", (*GPU, *again))
    assert found.model == "m/b.gguf"
    assert sizes(found)["CUDA0 model buffer"] == 1500.0
    assert any("2 start-ups" in note for note in found.notes)


def test_builds_of_2023_name_devices_by_their_sum() -> None:
    lines = (
        "main: build = 1313 (abc1234)",
        "llm_load_tensors: mem required  =  107.55 MB",
        "llm_load_tensors: offloaded 43/43 layers to GPU",
        "llm_load_tensors: VRAM used: 8694.21 MB",
        "llama_new_context_with_model: n_ctx      = 4096",
        "llama_kv_cache_init: VRAM kv self = 3200.00 MB",
        "llama_new_context_with_model: kv self size  = 3200.00 MB",
        "llama_new_context_with_model: compute buffer total size = 359.57 MB",
        "llama_new_context_with_model: VRAM scratch buffer: 358.00 MB",
    )
    found = measure("llamacpp", lines)
    assert found.engine_version == "b1313"
    assert sizes(found) == {
        "VRAM model buffer": 8694.21,
        "CPU model buffer": 107.55,
        "VRAM KV buffer": 3200.0,
        "VRAM compute buffer": 358.0,
    }
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == 4096
    assert pool.bytes == two(3200.0)


@pytest.mark.parametrize(
    ("build", "line", "expected"),
    [
        ("b2354", "llm_load_tensors:      CUDA0 buffer size =  3847.55 MiB", {"where": "CUDA0", "buffer": "model", "size_bytes": two(3847.55)}),
        ("b2354", "llama_new_context_with_model:  CUDA_Host input buffer size   =    13.02 MiB", {"buffer": "input", "size_bytes": two(13.02)}),
        ("b2354", "llama_new_context_with_model: KV self size  =  256.00 MiB, K (f16):  128.00 MiB, V (f16):  128.00 MiB", {"kv_cache_bytes": two(256.0), "key_type": "f16"}),
        ("b4754", "llama_init_from_model:      CUDA0 compute buffer size =   560.00 MiB", {"where": "CUDA0", "buffer": "compute"}),
        ("b5285", "llama_kv_cache_unified:        CPU KV buffer size =   576.00 MiB", {"where": "CPU", "size_bytes": two(576.0)}),
        ("b5636", "llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers,  1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB", {"cells_count": 8192, "sequences_count": 1}),
        ("b11549", "llama_memory_recurrent: size =  263.50 MiB (     1 cells,  64 layers,  1 seqs  0 rs_seq), R (f32):    7.50 MiB, S (f32):  256.00 MiB", {"state_bytes": two(263.5), "snapshots_count": 0}),
        ("b6100", "llama_memory_recurrent: size = 1054.00 MiB (     4 cells,  64 layers,  4 seqs), R (f32):   30.00 MiB, S (f32): 1024.00 MiB", {"state_bytes": two(1054.0)}),
        ("b11549", "common_params_fit_impl: projected to use 8827 MiB of device memory vs. 10919 MiB of free device memory", {"projected_bytes": ByteRange(8827 * MIB - MIB // 2, 8827 * MIB, 8827 * MIB + MIB // 2), "domain": "device"}),
        ("b11549", "srv  load_model: prompt cache is enabled, size limit: 8192 MiB", {"cache_ram": "8192"}),
        ("b11549", "slot   operator(): id  3 | task 2 | new prompt, n_ctx_slot = 2048, n_keep = 0, task.n_tokens = 128", {"slot_id": 3, "prompt_tokens": 128}),
        ("b4754", "slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 33", {"slot_id": 0, "prompt_tokens": 33}),
        ("b4754", "slot update_slots: id  0 | task 7 | prompt processing progress, n_past = 33, n_tokens = 33, progress = 1.000000", {"scheduled_tokens": 33}),
        ("b11549", "slot      release: id  3 | task 2 | stop processing: n_tokens = 255, truncated = 0", {"slot_tokens": 255}),
        ("b11549", "slot create_check: id  3 | task 2 | created context checkpoint 1 of 32 (pos_min = 0, pos_max = 123, n_tokens = 124, size = 1.818 MiB)", {"slot_id": 3, "checkpoint_count": 1}),
        ("b4754", "INFO [                    main] build info | tid=\"1\" timestamp=1 build=3285 commit=\"abc12\"", {"engine_version": "3285"}),
        ("ollama 0.11", 'time=2025-09-11T00:42:50.484+02:00 level=INFO source=backend.go:310 msg="model weights" device=ROCm0 size="59.8 GiB"', {"where": "ROCm0", "buffer": "model"}),
        ("ollama 0.6", 'level=INFO source=ggml.go:377 msg="model weights" buffer=CUDA0 size="6.0 GiB"', {"where": "CUDA0"}),
        ("ollama 0.24", 'level=INFO source=device.go:272 msg="compute graph" device=CPU size="2.2 MiB"', {"where": "CPU", "buffer": "compute"}),
        ("ollama 0.5", 'level=INFO source=memory.go:356 msg="offload to cuda" layers.requested=-1 layers.model=33 layers.offload=33 layers.split="" memory.available="[23.3 GiB]" memory.gpu_overhead="0 B" memory.required.full="6.5 GiB" memory.required.partial="6.5 GiB" memory.required.kv="1.0 GiB" memory.required.allocations="[6.5 GiB]"', {"offloaded_count": 33, "domain": "cuda"}),
    ],
)  # fmt: skip
def test_wordings(build: str, line: str, expected: dict[str, object]) -> None:
    found = values("llamacpp", line)
    assert {name: found.get(name) for name in expected} == expected, build


def test_ollama_s_own_lines_stand_where_llama_cpp_prints_none() -> None:
    lines = (
        'level=INFO source=routes.go:1864 msg="Listening on [::]:11434 (version 0.24.0)"',
        'level=INFO source=runner.go:1278 msg=load request="{Operation:commit LoraPath:[] Parallel:2 BatchSize:512 FlashAttention:Enabled KvSize:8192 KvCacheType: NumThreads:2 GPULayers:[] MultiUserCache:false ProjectorPath: MainGPU:0 UseMmap:false}"',
        'level=INFO source=ggml.go:494 msg="offloaded 37/37 layers to GPU"',
        'level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="9.1 GiB"',
        'level=INFO source=device.go:245 msg="model weights" device=CPU size="1.1 GiB"',
        'level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="1.6 GiB"',
        'level=INFO source=device.go:262 msg="compute graph" device=CUDA0 size="121.8 MiB"',
        'level=INFO source=server.go:1384 msg="llama runner started in 1.20 seconds"',
    )
    found = measure("llamacpp", lines)
    assert sizes(found)["CUDA0 KV buffer"] == 1638.4
    assert {figure.name for figure in found.figures if figure.on_host} == {"CPU model buffer"}
    settings = dict(found.settings)
    assert (settings["n_parallel"], settings["n_ctx"], settings["offloaded_layers"]) == (2, 8192, "37/37")
    assert found.notes == ("run by Ollama 0.24.0",)


def test_llama_cpp_s_own_print_is_kept_over_ollama_s_rounded_one() -> None:
    lines = (
        "llama_context: constructing llama_context",
        "llama_kv_cache:  CUDA0 KV buffer size =  1224.00 MiB",
        'level=INFO source=device.go:256 msg="kv cache" device=CUDA0 size="1.2 GiB"',
    )
    assert sizes(measure("llamacpp", lines)) == {"CUDA0 KV buffer": 1224.0}


def test_an_indexer_s_keys_are_a_cache_of_their_own() -> None:
    lines = (
        "llama_context: constructing llama_context",
        "llama_kv_cache_dsa: creating main KV cache, size = 8192 cells",
        "llama_kv_cache:      CUDA0 KV buffer size =   549.00 MiB",
        "llama_kv_cache: size =  549.00 MiB (  8192 cells,  61 layers,  1/1 seqs), K (f16):  549.00 MiB, V (f16):    0.00 MiB",
        "llama_kv_cache_dsa: creating indexer KV cache, size = 8192 cells",
        "llama_kv_cache:      CUDA0 KV buffer size =   122.00 MiB",
        "llama_kv_cache: size =  122.00 MiB (  8192 cells,  61 layers,  1/1 seqs), K (f16):  122.00 MiB, V (f16):    0.00 MiB",
    )
    found = measure("llamacpp", lines)
    assert sizes(found) == {"CUDA0 KV buffer": 549.0, "CUDA0 indexer key buffer": 122.0}
    assert {pool.kind: pool.bytes for pool in found.pools} == {"": two(549.0), "indexer keys": two(122.0)}


def test_a_server_that_printed_no_buffers_is_told_how_to_print_them() -> None:
    quiet = [
        "0.00.001.837 I srv          init: build_info: b0-unknown",
        "0.02.543.444 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'false'",
        "0.02.545.112 I srv          init: listening on http://127.0.0.1:8080",
    ]
    assert any("-lv 4" in note for note in measure("llamacpp", quiet, "quiet.log").notes)
    assert not any("-lv 4" in note for note in recorded("gemma3-270m").notes)
