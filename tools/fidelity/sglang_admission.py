"""Records what SGLang's own admission and retraction decide on random batches: tests/simulation/data/sglang_admission.json.

    python tools/fidelity/sglang_admission.py tests/simulation/data/sglang_admission.json

Needs `sglang` 0.5.23 without its dependencies, triton and torch's CPU build. What of its imports is missing stands empty: admission
uses none of it. Pool and cache are two numbers here; PrefillAdder, its budget, the ratio's tracker and the order of retraction are SGLang's.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import json
import random
import sys
import types
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

CASES = 200
VERSION = "0.5.23"
COMPONENTS = "sglang.srt.managers.scheduler_components"


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for each package named."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] in self.names:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module).update(__path__=[], __getattr__=_anything)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _anything(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


def sglang_modules() -> tuple[Any, Any]:
    """`schedule_policy` and `schedule_batch`."""
    missing = Missing({"torchvision"})
    sys.meta_path.append(missing)
    version = importlib.metadata.version
    vars(importlib.metadata).update(version=lambda name: "0.28.0" if name == "torchvision" else version(name))
    while True:
        try:
            batch = import_module("sglang.srt.managers.schedule_batch")
            policy = import_module("sglang.srt.managers.schedule_policy")
        except ModuleNotFoundError as error:
            name = (error.name or "").split(".")[0]
            if not name or name == "sglang" or name in missing.names:
                raise
            missing.names.add(name)
            for loaded in [loaded for loaded in sys.modules if loaded.startswith("sglang")]:
                del sys.modules[loaded]
        else:
            return policy, batch


class Prefix:
    """A cached prefix: tokens of it that nobody held, and who pins them now."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.references = 0


class Cache:
    """A prefix cache as admission sees it: what can be evicted, less what is pinned."""

    disable = False
    buffer_pipeline = None

    def __init__(self, evictable: int) -> None:
        self.evictable = evictable

    def supports_mamba(self) -> bool:
        return False

    def supports_prefix_sharing(self) -> bool:
        return True

    def evictable_size(self) -> int:
        return self.evictable

    def lock(self, node: Prefix) -> Prefix:
        self.evictable -= node.tokens if not node.references else 0
        node.references += 1
        return node

    def unlock(self, node: Prefix) -> None:
        node.references -= 1
        self.evictable += node.tokens if not node.references else 0

    def finish_storage_prefetch_admission(self, *_: object, **__: object) -> None:
        pass


def allocator_of(base: Any, page: int, available: int) -> object:
    class Allocator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.page_size = page

        def available_size(self) -> int:
            return available

    Allocator.__abstractmethods__ = frozenset()
    return Allocator()


class Candidate(SimpleNamespace):
    """The fields of a request that admission reads."""

    extend_end: int
    prefix_len: int

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len


def request(known: int, cached: int, pinned: int, most: int, generated: int) -> Candidate:
    return Candidate(
        full_untruncated_fill_ids=range(known),
        prefix_len=cached,
        extend_end=0,
        last_node=Prefix(pinned),
        output_ids=range(generated),
        origin_input_ids=range(known - generated),
        sampling_params=SimpleNamespace(max_new_tokens=most, ignore_eos=False),
        host_hit_length=0,
        swa_host_hit_length=0,
        auxiliary_swa_host_hit_length=0,
        mamba_host_hit_length=0,
        retracted_stain=False,
        cache_request_handle=None,
        storage_hit_length=0,
        storage_hit_start=0,
        host_hit_is_storage=False,
        materialized_host_hit_len=lambda: 0,
        fulfilled_storage_hit_len=lambda _: 0,
        needs_host_load_back=lambda: False,
        kv=SimpleNamespace(req_pool_idx=None, holds_mamba=False, holds_kv=False),
    )


def random_case(choice: random.Random) -> dict[str, Any]:
    page = choice.choice([1, 1, 16, 64])
    chunk = choice.choice([None, 512, 2048, 8192])
    free = choice.randrange(0, 60_000) // page * page
    evictable = choice.randrange(0, 20_000) // page * page
    candidates = []
    left = evictable
    for _ in range(choice.randrange(1, 9)):
        known = choice.choice(
            [choice.randrange(1, 300), choice.randrange(1, 6_000), choice.randrange(1, 30_000)]
        )
        cached = choice.choice([0, choice.randrange(0, known)]) // page * page
        pinned = min(choice.choice([0, cached, cached // 2]), left) // page * page
        left -= pinned
        generated = choice.choice([0, 0, choice.randrange(0, known)])
        most = generated + choice.choice([1, choice.randrange(1, 500), choice.randrange(1, 20_000)])
        candidates.append([known, cached, pinned, most, generated])
    running = [
        [most, choice.randrange(1, most + 1)]
        for most in (choice.choice([16, 256, 1024, 16_000]) for _ in range(choice.randrange(0, 12)))
    ]
    resumed = None
    if chunk is not None and choice.random() < 0.3:
        resumed = [choice.randrange(2, 20_000), choice.randrange(1, 5_000)]
    return {
        "page": page,
        "chunk": chunk,
        "max_prefill": choice.choice([4_096, 16_384]),
        "clip": choice.choice([64, 4_096]),
        "ratio": choice.choice([0.7, 0.098, 0.3331, 1.0]),
        "free": free,
        "evictable": evictable,
        "running": running,
        "resumed": resumed,
        "candidates": candidates,
    }


def decided(policy: Any, case: dict[str, Any]) -> dict[str, Any]:
    """What PrefillAdder does with a case, in the loop of `_get_new_batch_prefill_raw`."""
    base = import_module("sglang.srt.mem_cache.allocator.base").BaseTokenToKVPoolAllocator
    policy.CLIP_MAX_NEW_TOKENS = case["clip"]
    cache = Cache(case["evictable"])
    adder = policy.PrefillAdder(
        case["page"],
        cache,
        allocator_of(base, case["page"], case["free"]),
        SimpleNamespace(
            reqs=[request(9_999_999, 0, 0, most, generated) for most, generated in case["running"]]
        ),
        case["ratio"],
        case["max_prefill"],
        case["chunk"],
    )
    shares = []
    partial = None
    if case["resumed"] is not None:
        extend, most = case["resumed"]
        resumed = request(extend, 0, 0, most, 0)
        partial = adder.add_chunked_req(resumed)
        shares.append([resumed.extend_end, int(partial is not None)])
    answer = adder.budget_state().name
    for row in case["candidates"]:
        if adder.budget_state() == policy.AddReqResult.OTHER:
            break
        candidate = request(*row)
        before = len(adder.can_run_list)
        result = adder.add_one_req(candidate, has_chunked_req=partial is not None, truncation_align_size=None)
        answer = result.name
        if len(adder.can_run_list) > before:
            shares.append(
                [candidate.extend_end - candidate.prefix_len, int(adder.new_chunked_req is candidate)]
            )
        if result != policy.AddReqResult.CONTINUE:
            break
    return {"shares": shares, "answer": answer, "left": adder.rem_total_tokens}


def retractions(batch: Any, choice: random.Random) -> list[dict[str, Any]]:
    """Orders in which running requests are kept, and the ratio where the last of them went."""
    tracker = import_module(f"{COMPONENTS}.new_token_ratio_tracker").NewTokenRatioTracker
    out = []
    for _ in range(60):
        rows = []
        for _ in range(choice.randrange(1, 9)):
            most = choice.choice([40, 256, 1024])
            rows.append([choice.randrange(1, 6) * 8, choice.randrange(1, 4) * 100, most])
        reqs = [request(p + g, 0, 0, most, g) for g, p, most in rows]
        order = batch.ScheduleBatch._get_decode_retraction_order(reqs)
        kept = [reqs[place] for place in order[: max(1, len(order) // 2)]]
        ratio = tracker.estimate_new_token_ratio_after_retract(kept)
        out.append({"rows": rows, "order": order, "kept": len(kept), "ratio": ratio})
    return out


def decays() -> list[float]:
    """The ratio after 0, 1, 100, 599 and 700 decode steps."""
    module = import_module(f"{COMPONENTS}.new_token_ratio_tracker")
    vars(module).update(get_schedule=lambda: SimpleNamespace(schedule_conservativeness=1.0))
    tracker = module.NewTokenRatioTracker.from_config()
    seen = []
    for step in range(701):
        if step in (0, 1, 100, 599, 700):
            seen.append(tracker.current)
        tracker.decay_step()
    return seen


def publish_settings(*modules: Any) -> None:
    """The few settings that admission looks up."""
    for module in modules:
        module.get_schedule = lambda: SimpleNamespace(schedule_policy="fcfs", retraction_policy="length")
        module.get_exec = lambda: SimpleNamespace(
            features=SimpleNamespace(enable_encoder_swa_bounded_replay=False)
        )


def main() -> None:
    policy, batch = sglang_modules()
    choice = random.Random(5)
    publish_settings(policy, batch)
    cases = []
    for _ in range(CASES):
        case = random_case(choice)
        cases.append(case | decided(policy, case))
    record = {
        "sglang": VERSION,
        "passes": cases,
        "retractions": retractions(batch, choice),
        "decays": decays(),
    }
    lines = [json.dumps(case, separators=(",", ":")) for case in cases]
    head = json.dumps({key: value for key, value in record.items() if key != "passes"}, separators=(",", ":"))
    text = head[:-1] + ',"passes":[\n' + ",\n".join(lines) + "\n]}\n"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
