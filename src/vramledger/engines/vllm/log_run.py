"""vLLM's log lines about how far it is: loading, warm-up, readiness, exit."""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_warmup = partial(line_pattern, Event.WARMUP)
_ready = partial(line_pattern, Event.READY)
_exit = partial(line_pattern, Event.EXIT)

PROGRESS = (
    line_pattern(
        Event.LOAD_BEGIN,
        "Starting to load model ",
        r"Starting to load model (?P<model>\S{1,300}?)\.\.\.",
        source="v1/worker/gpu_model_runner.py, worker/model_runner.py, v1/worker/cpu_model_runner.py",
    ),
    line_pattern(
        Event.LOAD_BEGIN,
        "Loading drafter model",
        r"Loading drafter model\.\.\.",
        source="v1/worker/gpu_model_runner.py from 0.8, v1/worker/cpu_model_runner.py",
        part="draft",
    ),
    _warmup(
        "Encoder cache will be initialized with a budget of ",
        r"Encoder cache will be initialized with a budget of (?P<encoder_budget_tokens>NUM) tokens, and profiled with "
        r"(?P<items_count>NUM) (?P<modality>[a-z_]{1,30}) items",
        source="v1/worker/gpu_model_runner.py, from 0.7",
        step="encoder profile",
    ),
    _warmup("Capturing cudagraphs for decoding", r"Capturing cudagraphs for decoding", source="worker/model_runner.py, V0", step="graphs"),
    _warmup(
        "Capturing CUDA graph",
        r"Capturing CUDA graph(?:s| shapes)(?: \((?P<shape>[^)]{1,60})\))?: {1,4}(?P<done_percent>\d{1,3})%\|[^|]{0,80}\| "
        r"{0,2}(?P<captured_count>NUM)/(?P<graphs_count>NUM)",
        source="v1/worker/gpu_model_runner.py, v1/worker/gpu/cudagraph_utils.py, worker/model_runner.py (progress bar)",
        step="graphs",
    ),
    _warmup(
        "Compile and warming up model for size ",
        r"Compile and warming up model for size (?P<shape>NUM)",
        source="v1/worker/gpu_worker.py, from 0.6.6",
        step="compile",
    ),
    _warmup("Warming up model for the compilation", r"Warming up model for the compilation", source="v1/worker/cpu_model_runner.py", step="begin"),
    _warmup("Warming up done.", r"Warming up done\.", source="v1/worker/cpu_model_runner.py", step="end"),
    _warmup(
        "Warmup finished in ",
        r"Warmup finished in (?P<elapsed_s>NUM) secs, allocated (?P<printed>[0-9.]{1,20} ?[A-Za-z]{0,3}) of device memory",
        source="worker/hpu_model_runner.py, to 0.9",
        step="end",
    ),
    _warmup(
        "Initial profiling/warmup run took ",
        r"Initial profiling/warmup run took (?P<elapsed_s>NUM) s",
        source="compilation/monitor.py, from 0.16",
        step="profile run",
    ),
    _warmup(
        "torch.compile takes ",
        r"torch\.compile takes (?P<elapsed_s>NUM) s in total",
        source="compilation/monitor.py",
        step="compile",
    ),
    _warmup(
        "KV blocks are available for ",
        r"only (?P<num_blocks>NUM) KV blocks are available for (?P<wanted_blocks>NUM) required warmup blocks",
        source="v1/worker/gpu/warmup.py, from 0.24",
        step="skipped",
    ),
    _warmup(
        "init engine (profile, create kv cache, warmup model) took ",
        r"init engine \(profile, create kv cache, warmup model\) took (?P<elapsed_s>NUM) s"
        r"(?:econds)?(?: \(compilation: (?P<compilation_s>NUM) s)?",
        source="engine/llm_engine.py, v1/engine/core.py",
        step="init engine",
    ),
    _ready("Application startup complete", r"Application startup complete", source="uvicorn"),
    _ready("Uvicorn running on ", r"Uvicorn running on (?P<address>\S{1,100})", source="uvicorn"),
    _ready("Server is ready to accept requests", r"Server is ready to accept requests", source="entrypoints/grpc_server.py, from 0.16"),
)  # fmt: skip

ENDING = (
    _exit(
        "died unexpectedly",
        r"(?:Worker proc|Engine core proc) (?P<exited>\S{1,80}) died unexpectedly(?: \(exit code: (?P<exit_code>-?\d{1,10})\))?",
        source="v1/executor/multiproc_executor.py from 0.9 (the code from 0.33), v1/engine/core_client.py",
    ),
    _exit(
        "died unexpectedly",
        r"RayWorkerProc rank=(?P<exited>[\[\], 0-9]{1,200}) died unexpectedly",
        source="v1/executor/ray_executor_v2.py, from 0.20",
    ),
    _exit(
        " died, exit code: ",
        r"Worker (?P<exited>\S{1,80}) pid (?P<pid_id>NUM) died, exit code: (?P<exit_code>-?\d{1,10})",
        source="executor/multiproc_worker_utils.py, V0",
    ),
    _exit(
        "EngineCore: trigger received signal=",
        r"EngineCore: trigger received signal=(?P<signal>[A-Z0-9]{2,20})",
        source="v1/engine/core.py, from 0.30",
    ),
    _exit("API server: shutdown triggered", r"API server: shutdown triggered", source="entrypoints/launcher.py, from 0.30"),
    _exit("Shutting down FastAPI HTTP server", r"Shutting down FastAPI HTTP server", source="entrypoints/launcher.py, to 0.29"),
    _exit("DPSupervisor received ", r"DPSupervisor received (?P<signal>[A-Z0-9]{2,20}), shutting down", source="entrypoints/dp_supervisor.py"),
    _exit("WorkerProc was terminated", r"WorkerProc was terminated", source="v1/executor/multiproc_executor.py"),
    _exit("Finished server process [", r"Finished server process \[(?P<pid_id>NUM)\]", source="uvicorn"),
)  # fmt: skip

RUN_PATTERNS = PROGRESS + ENDING
