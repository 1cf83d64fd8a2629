"""vLLM's log lines about CUDA graphs: estimate, capture, single shapes."""

from __future__ import annotations

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

GRAPH_PATTERNS = (
    line_pattern(
        Event.GRAPHS,
        "raph capturing finished in ",
        r"(?P<graph_kind>Encoder graph|Graph) capturing finished in (?P<elapsed_s>NUM) secs(?:, took (?P<graph_gib>NUM) GiB|\.)",
        source="worker/model_runner.py, v1/worker/gpu_model_runner.py, v1/worker/gpu/model_runner.py; the encoder's "
        "v1/worker/mm_encoder_model_runner.py from 0.31",
    ),
    line_pattern(
        Event.GRAPHS,
        "CUDA graph pool memory: ",
        r"CUDA graph pool memory: (?P<graph_gib>NUM) GiB \(actual\), (?P<estimated_graph_gib>NUM) GiB \(estimated\)",
        source="v1/worker/gpu_worker.py, from 0.18",
    ),
    line_pattern(
        Event.GRAPH_ESTIMATE,
        "Estimated CUDA graph memory: ",
        r"Estimated CUDA graph memory: (?P<graph_gib>NUM) GiB total",
        source="v1/worker/gpu_model_runner.py, from 0.18",
    ),
    line_pattern(
        Event.GRAPH_ESTIMATE,
        "The current --gpu-memory-utilization=",
        r"The current --gpu-memory-utilization=(?P<utilization_ratio>NUM) is equivalent to --gpu-memory-utilization="
        r"(?P<equivalent_ratio>NUM) without",
        source="v1/worker/gpu_worker.py, from 0.18",
        subtracted=True,
    ),
    line_pattern(
        Event.GRAPH_ESTIMATE,
        "--gpu-memory-utilization from ",
        r"CUDA graph memory.{1,400}? increas(?:e|ing) --gpu-memory-utilization from (?P<utilization_ratio>NUM) to "
        r"(?P<wanted_ratio>NUM)",
        source="v1/worker/gpu_worker.py, from 0.18 (in 0.18 and 0.19 the default)",
        subtracted=False,
    ),
    line_pattern(
        Event.GRAPH_SHAPE,
        "MiB first-capture + (",
        r"Estimated (?P<shape>[A-Z_]{2,30}) CUDA graph memory: (?P<graph_mib>NUM) MiB first-capture \+ "
        r"\((?P<graphs_count>NUM)-1\) × (?P<each_further_mib>NUM) MiB per-graph",
        source="v1/worker/gpu_model_runner.py, from 0.18, debug",
        estimated=True,
    ),
    line_pattern(
        Event.GRAPH_SHAPE,
        "Estimated encoder CUDA graph memory: ",
        r"Estimated encoder CUDA graph memory: (?P<graph_mib>NUM) MiB for (?P<graphs_count>NUM) graphs",
        source="v1/worker/gpu_model_runner.py, from 0.23, debug",
        shape="ENCODER",
        estimated=True,
    ),
    line_pattern(
        Event.WARMUP,
        "Profiling CUDA graph memory: ",
        r"Profiling CUDA graph memory: (?P<shape>.{1,300})",
        source="v1/worker/gpu_model_runner.py, from 0.18",
        step="graph estimate",
    ),
    line_pattern(
        Event.WARMUP,
        "Capturing a cudagraph ",
        r"Capturing a cudagraph (?:for shape|on) (?P<shape>.{1,300})",
        source="compilation/backends.py, compilation/cuda_graph.py, debug",
        step="graph",
    ),
    line_pattern(
        Event.WARMUP,
        "CG Capture: mode=",
        r"CG Capture: mode=(?P<shape>.{1,300})",
        source="v1/worker/gpu/cudagraph_utils.py, from 0.18, debug",
        step="graph",
    ),
    line_pattern(
        Event.WARMUP,
        "Captured breakable cudagraph for ",
        r"Captured breakable cudagraph for (?P<shape>.{1,300})",
        source="compilation/breakable_cudagraph.py, from 0.22, debug",
        step="graph",
    ),
    line_pattern(
        Event.WARMUP,
        "Capturing encoder cudagraph for budget=",
        r"Capturing encoder cudagraph for (?P<shape>budget=.{1,200})",
        source="v1/worker/encoder_cudagraph.py, from 0.20, debug",
        step="encoder graph",
    ),
    line_pattern(
        Event.WARMUP,
        "Encoder CUDA graph capture complete.",
        r"Encoder CUDA graph capture complete\. Captured (?P<graphs_count>NUM)",
        source="v1/worker/encoder_cudagraph.py, from 0.20",
        step="encoder graphs",
    ),
    line_pattern(
        Event.WARMUP,
        "Capturing model for ",
        r"Capturing model for (?P<shape>.{1,60}) speculator",
        source="v1/worker/gpu/spec_decode, from 0.25",
        step="draft graphs",
    ),
    line_pattern(
        Event.WARMUP,
        "captured centroids CUDA graphs for sizes ",
        r"captured centroids CUDA graphs for sizes (?P<shape>.{1,200})",
        source="v1/spec_decode/gemma4.py, from 0.22",
        step="draft graphs",
    ),
    line_pattern(
        Event.WARMUP,
        "captured:",
        r"^(?P<shape>\S{1,60}) captured:(?P<graphs_count>NUM) \(NUM%\) used_mem:(?P<printed>.{1,30}?) buckets:",
        source="worker/hpu_model_runner.py, to 0.9",
        step="graphs",
    ),
    line_pattern(
        Event.SETTINGS,
        "EncoderCudaGraphManager initialized with ",
        r"EncoderCudaGraphManager initialized with (?P<encoder_graphs>.{1,300})",
        source="v1/worker/encoder_cudagraph.py, from 0.20",
    ),
)
