"""A configured gateway before an engine that tells of its pool: one request, seen in metrics, log and trace alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gateway.client import ask, request, until
from gateway.collector import Collector, collector, told
from gateway.engine import EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.services import KEY_A, Says, chat, service_of, text
from vramledger.telemetry.exposition import parse_exposition

OPEN_METRICS = "Accept: application/openmetrics-text; version=1.0.0\r\n"


class Pool:
    """A vLLM as far as its metrics go: 40 blocks of 16, one of them never used."""

    def __init__(self) -> None:
        self.used = 0
        self.going = asyncio.Event()

    async def script(self, call: Call) -> None:
        if call.path == "/metrics":
            await call.whole(self.metrics(), b"200 OK")
        elif "chat" in call.path:
            self.used = 3
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            await self.going.wait()
            await call.chunk(WORD + event({"choices": [], "usage": USAGE}))
            self.used = 0
            await call.write(b"0\r\n\r\n")
        else:
            await call.whole(b"not here", b"404 Not Found")

    def metrics(self) -> bytes:
        return (
            f'vllm:kv_cache_usage_perc{{engine="0"}} {self.used / 39}\n'
            f'vllm:num_requests_running{{engine="0"}} {int(self.used > 0)}\n'
            'vllm:num_requests_waiting{engine="0"} 0\n'
            'vllm:num_preemptions_total{engine="0"} 2\n'
            'vllm:prefix_cache_hits_total{engine="0"} 7\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="40",engine="0"} 1\n'
        ).encode()


def test_a_request_is_seen_alike_in_metrics_log_and_trace(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"

    async def story(taken: Collector) -> dict[tuple[str, str], float]:
        pool = Pool()
        async with Engine(pool.script) as engine:
            telling = f"""
[telemetry]
request_log = "{log}"
traces_endpoint = "{taken.endpoint}"
traces_ratio = 1.0
models = ["tiny"]
"""
            config = text(engine.port, more=telling).replace('listen = ""', 'listen = "127.0.0.1:0"')
            says = Says(config)
            async with service_of(says) as service:
                assert service.admin is not None
                await until(lambda: any(one.age_ns is not None for one in service.engines.instances()))
                asked = asyncio.create_task(
                    ask(service.gateway.port, chat(KEY_A, stream=True, max_tokens=32, model="tiny"))
                )
                await until(lambda: pool.used > 0)
                await until(lambda: service.engines.instances()[0].used_blocks == 3)
                pool.going.set()
                answer = await asked
                assert answer.status == 200
                await until(lambda: service.telemetry.requests.blocks_return.count("one") == 1)
                scrape = await ask(
                    service.admin.port,
                    request("/metrics", method="GET", headers=OPEN_METRICS).replace(
                        b"Host: gateway", b"Host: localhost"
                    ),
                )
                assert scrape.headers["content-type"].startswith("application/openmetrics-text")
                exposition = parse_exposition(scrape.body)
                assert exposition.complete
                assert exposition.unread_count == 0
        return {
            (
                one.name.removeprefix("vramledger_"),
                ",".join(value for _, value in sorted(one.labels.items())),
            ): one.value
            for one in exposition.readings
        }

    with collector() as taken:
        values = asyncio.run(story(taken))
    (line,) = [json.loads(text) for text in log.read_text().splitlines()]
    whole = taken.named("chat tiny")
    said = told(whole)
    assert values["admissions_total", "admit,fits"] == 1
    assert values["tenant_requests_total", "completed,a"] == 1
    assert (line["tenant"], said["vramledger.tenant"], said["vramledger.upstream"]) == ("a", "a", "one")
    assert (
        values["output_tokens_total", "tiny"]
        == line["output_tokens"]
        == said["gen_ai.usage.output_tokens"]
        == 3
    )
    assert values["cached_prompt_tokens_total", "tiny"] == line["cached_prompt_tokens"] == 7
    reserved: Any = line["decision"]["numbers"]["reserved_output_tokens"]
    assert (
        values["reserved_output_tokens_total", "tiny"]
        == reserved
        == said["vramledger.reserved_output_tokens"]
    )
    assert line["trace"] == whole.trace_id.hex()
    assert taken.named("blocks returned").parent_span_id == whole.span_id
    assert values["upstream_info", "vllm,one"] == values["engine_up", "one"] == 1
    assert values["used_blocks", "one"] == values["booked_blocks", "one"] == 0
    assert (values["preempted_requests_total", "one"], values["reused_tokens_total", "one"]) == (2, 7)
    assert ("weights_bytes", "one") not in values
