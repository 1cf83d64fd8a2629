"""Hit shares of a Mooncake trace over cache sizes, beside an independent program's: the package kvcache-simulator.

    python -m tools.cache_curves TRACE.jsonl.gz [--blocks 409,1638,...] [--record FILE]

Prints both shares of prompt tokens over the second half of the requests. They must be equal: the token counts are compared, not
the rounded shares. Without the package only ours are printed. `--record` writes the other program's counts for the tests.
A cache has to hold the longest prompt: of a longer one the two keep different parts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from vramledger.kvcache.blocks.replay import Policy, Prompts, ceiling, hit_share, prompts_of

THEIR_NAMES = {Policy.LRU: "lru", Policy.FIFO: "fifo", Policy.FARTHEST: "optimal"}
BLOCKS = "409,1638,3276,6553,13107,26214"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--blocks", default=BLOCKS, help="cache sizes in blocks, by commas")
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--record", type=Path, help="write the other program's counts there")
    asked = parser.parse_args()
    prompts = read_prompts(asked.trace, asked.block_tokens)
    warmup = len(prompts.nodes) // 2
    theirs = their_plan(asked.trace, asked.block_tokens)
    longest = max(map(len, prompts.nodes))
    rows, is_equal = [], True
    for blocks in map(int, asked.blocks.split(",")):
        if blocks < longest:
            print(f"{blocks} blocks do not hold the longest prompt of {longest}: left out")
            continue
        for policy in Policy:
            ours = hit_share(prompts, blocks, policy, warmup=warmup)
            line = f"{policy:9} {blocks:9,} blocks: {ours.share:7.2%} ({ours.hit_tokens:,} tokens)"
            if theirs is not None and ours.was_full:
                found = their_share(theirs, policy, blocks)
                same = (found.hitTokens, found.totalTokens) == (ours.hit_tokens, ours.looked_up_tokens)
                is_equal = is_equal and same
                line += f"   kvcache-simulator {found.hitRate:7.2%} ({found.hitTokens:,})" + (
                    "" if same else "   DIFFERS"
                )
                rows.append([policy.value, blocks, found.hitTokens, found.totalTokens])
            print(line, flush=True)
    print(f"unlimited: {ceiling(prompts, warmup=warmup).share:.2%}")
    if asked.record is not None and theirs is not None:
        version = metadata.version("kvcache-simulator")
        document = {
            "program": f"kvcache-simulator {version}",
            "trace": asked.trace.name,
            "warmup": warmup,
            "points": rows,
        }
        asked.record.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return 0 if is_equal else 1


def read_prompts(path: Path, block_tokens: int) -> Prompts:
    packed = path.read_bytes()
    text = gzip.decompress(packed) if path.suffix == ".gz" else packed
    rows = [json.loads(line) for line in text.splitlines()]
    return prompts_of(((row["hash_ids"], row["input_length"]) for row in rows), block_tokens)


def their_plan(path: Path, block_tokens: int) -> Any:
    try:
        from kvcache_sim.plan import build_execution_plan
        from kvcache_sim.trace import parse_trace_file
    except ImportError:
        print("kvcache-simulator is not installed: ours alone")
        return None
    return build_execution_plan(parse_trace_file(path, block_size=block_tokens))


def their_share(plan: Any, policy: Policy, blocks: int) -> Any:
    from kvcache_sim.policies import simulate_policy

    return simulate_policy(plan, THEIR_NAMES[policy], blocks)


if __name__ == "__main__":
    sys.exit(main())
