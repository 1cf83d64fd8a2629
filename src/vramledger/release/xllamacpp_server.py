"""llama.cpp's own server out of the xllamacpp wheel, for machines without a llama-server.

    python -m vramledger.release.xllamacpp_server -m MODEL.gguf --port 8080 -c 8192 -np 4

takes the memory flags that llama-server takes, under the same names, and refuses others; like it, it takes the number of
threads from LLAMA_ARG_THREADS too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

PATIENCE_S = 2
_FLASH = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM. Exits with 2 for arguments that it does not know and where xllamacpp is not installed."""
    options = _parser().parse_args(arguments)
    try:
        import xllamacpp
    except ImportError:
        sys.stderr.write("xllamacpp is not installed: pip install 'vramledger[llamacpp]'\n")
        return 2
    signal.signal(signal.SIGTERM, _end)
    server = xllamacpp.Server(_params(xllamacpp, options))
    sys.stderr.write(f"listening on {server.listening_address}\n")
    sys.stderr.flush()
    while True:
        signal.pause()


def _end(*_: object) -> None:
    """The server waits for what is open to end, for ever where clients keep coming, and holds the interpreter meanwhile: only the kernel can end
    it then, which it does after a while."""
    signal.alarm(PATIENCE_S)
    sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", "--ctx-size", type=int)
    parser.add_argument("-np", "--parallel", type=int)
    parser.add_argument("-b", "--batch-size", type=int)
    parser.add_argument("-ub", "--ubatch-size", type=int)
    parser.add_argument("-ngl", "--gpu-layers", type=int)
    parser.add_argument("-ctk", "--cache-type-k")
    parser.add_argument("-ctv", "--cache-type-v")
    parser.add_argument("-fa", "--flash-attn", choices=sorted(_FLASH))
    parser.add_argument("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction)
    parser.add_argument("--swa-full", action=argparse.BooleanOptionalAction)
    parser.add_argument("-cram", "--cache-ram", type=int)
    parser.add_argument("-t", "--threads", type=int, default=os.environ.get("LLAMA_ARG_THREADS"))
    parser.add_argument("-lv", "--verbosity", type=int, default=3)
    for name in ("--metrics", "--slots", "--props"):
        parser.add_argument(name, action="store_true")
    return parser


def _params(library: Any, options: argparse.Namespace) -> Any:
    params = library.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.offline, params.ui = True, False
    plain = {
        "port": options.port,
        "n_ctx": options.ctx_size,
        "n_parallel": options.parallel,
        "n_batch": options.batch_size,
        "n_ubatch": options.ubatch_size,
        "n_gpu_layers": options.gpu_layers,
        "kv_unified": options.kv_unified,
        "swa_full": options.swa_full,
        "cache_ram_mib": options.cache_ram,
        "verbosity": options.verbosity,
        "endpoint_metrics": options.metrics,
        "endpoint_slots": options.slots,
        "endpoint_props": options.props,
    }
    for name, value in plain.items():
        if value is not None:
            setattr(params, name, value)
    for name, value in (("cache_type_k", options.cache_type_k), ("cache_type_v", options.cache_type_v)):
        if value is not None:
            setattr(params, name, getattr(library.ggml_type, f"GGML_TYPE_{value.upper()}"))
    if options.flash_attn is not None:
        kind = f"LLAMA_FLASH_ATTN_TYPE_{_FLASH[options.flash_attn]}"
        params.flash_attn_type = getattr(library.llama_flash_attn_type, kind)
    if options.threads is not None:
        params.cpuparams.n_threads = options.threads
    return params


if __name__ == "__main__":
    sys.exit(main())
