"""SGLang's wordings that no pattern reads are listed too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.sglang_wordings import main

SOURCE = """
def load(self):
    logger.info(f"max_total_num_tokens={tokens}, chunked_prefill_size={chunk}, max_prefill_tokens={most}, "
                f"max_running_requests={requests}, context_len={length}, available_gpu_mem={free:.2f} GB")
    logger.info(f"KV pool of a new kind holds {size:.2f} GB")
    logger.info("KV cache dtype is %s, k_scale %s", dtype, scale)
    logger.info("Serving is ready")
"""


def test_what_no_pattern_reads_is_listed_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "0.99.0" / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "pool.py").write_text(SOURCE)
    assert main([str(tmp_path / "0.99.0")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "info: KV pool of a new kind holds <f> GB",
        "    0.99.0:srt/pool.py:5",
        "1 wordings read in 1 tree(s), 1 left",
    ]
