"""Engines that are asked how they are: those that come late, go away, come back as others, are silent or answer with anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.client import ask, request, until
from gateway.engine import Call, Engine
from vramledger.admission.defaults import Goal
from vramledger.admission.settings import Reservation
from vramledger.errors import InputError
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.live.capacity import Given
from vramledger.gateway.live.instance import Condition
from vramledger.gateway.live.opening import LiveAdmitter, open_instances
from vramledger.gateway.settings import Upstream
from vramledger.telemetry.engine_process import free_port


class Vllm:
    """What a vLLM server answers to those who ask how it is."""

    def __init__(self) -> None:
        self.blocks = 64
        self.usage = 0.0
        self.generated = 100
        self.metrics: bytes | None = None
        """Instead of its own."""
        self.answers_metrics = True

    async def script(self, call: Call) -> None:
        if call.path == "/metrics" and not self.answers_metrics:
            await call.left()
        elif call.path == "/metrics":
            await call.whole(self._metrics() if self.metrics is None else self.metrics)
        elif call.path == "/v1/models":
            card = {"id": "tiny", "owned_by": "vllm", "root": "tiny", "parent": None, "max_model_len": 1024}
            await call.whole(json.dumps({"object": "list", "data": [card]}).encode())
        elif call.path == "/version":
            await call.whole(b'{"version":"0.32.0"}')
        elif call.path.startswith("/v1/"):
            await call.whole()
        else:
            await call.whole(b"{}", status=b"404 Not Found")

    def _metrics(self) -> bytes:
        return (
            f'vllm:kv_cache_usage_perc{{engine="0"}} {self.usage}\n'
            f'vllm:num_requests_running{{engine="0"}} 1\nvllm:num_requests_waiting{{engine="0"}} 0\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self.generated}\n'
            f'vllm:cache_config_info{{block_size="16",enable_prefix_caching="True",engine="0",'
            f'num_gpu_blocks="{self.blocks}"}} 1.0\n'
        ).encode()


@asynccontextmanager
async def watched(
    *ports: int, given: Given | None = None, goal: Goal = Goal.THROUGHPUT
) -> AsyncIterator[LiveAdmitter]:
    upstreams = [Upstream(host="127.0.0.1", port=port) for port in ports]
    admitter = await open_instances(upstreams, goal, given, interval_s=0.05)
    admitter.start()
    try:
        yield admitter
    finally:
        await admitter.close()
    assert all(asking.open_connections == 0 for asking in admitter.askings)


@asynccontextmanager
async def before(admitter: LiveAdmitter, *ports: int) -> AsyncIterator[Gateway]:
    gateway = Gateway([Upstream(host="127.0.0.1", port=port) for port in ports], admitter)
    await gateway.start("127.0.0.1", 0)
    try:
        yield gateway
    finally:
        await gateway.close()
    assert admitter.open_requests == 0


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await story()

    asyncio.run(bounded())


def test_an_engine_is_served_as_soon_as_it_answers_and_not_before() -> None:
    async def story() -> None:
        port = free_port()
        async with watched(port) as admitter, before(admitter, port) as gateway:
            (one,) = admitter.instances
            assert one.condition is Condition.OPENING and "refuses connections" in admitter.problems[0]
            early = await ask(gateway.port, request())
            assert (early.status, early.error["code"]) == (503, "engine-opening")
            assert int(early.headers["retry-after"]) >= 1
            vllm = Vllm()
            async with Engine(vllm.script, listen=port):
                await until(lambda: one.takes_new and one.readings > 0)
                assert (await ask(gateway.port, request(max_tokens=10))).status == 200
                assert admitter.problems == []
                state = admitter.instance_states(gateway.clock_ns())[0]
                assert (state.engine, state.total_blocks, state.block_size) == ("vllm", 63, 16)
                assert (state.total_output_tokens, state.is_up) == (100, True)
            await until(lambda: one.condition is Condition.DOWN)
            state = admitter.instance_states(gateway.clock_ns())[0]
            assert (state.is_up, state.running_requests, state.used_blocks) == (False, None, None)
            assert (state.total_output_tokens, state.total_blocks) == (100, 63)
            gone = await ask(gateway.port, request())
            assert (gone.status, gone.error["code"]) == (503, "engine-down")
            async with Engine(vllm.script, listen=port):
                await until(lambda: one.condition is Condition.UP)
                assert one.restarts == 1
                assert (await ask(gateway.port, request(max_tokens=10))).status == 200

    run(story)


def test_a_policy_that_cannot_go_with_an_engine_that_comes_late_is_a_problem_and_no_end_of_asking() -> None:
    async def story() -> None:
        port = free_port()
        risk = {"reservation": Reservation.RISK}
        admitter = await open_instances(
            [Upstream(host="127.0.0.1", port=port)], changes=risk, interval_s=0.05
        )
        admitter.start()
        try:
            vllm = Vllm()
            async with Engine(vllm.script, listen=port):
                await until(lambda: any("reservation is risk" in told for told in admitter.problems))
                with pytest.raises(InputError, match="reservation is risk"):
                    await open_instances([Upstream(host="127.0.0.1", port=port)], changes=risk)
            await until(lambda: any("refuses connections" in told for told in admitter.problems))
        finally:
            await admitter.close()

    run(story)


def test_an_engine_that_comes_back_with_another_pool_is_given_another_policy() -> None:
    async def story() -> None:
        vllm = Vllm()
        async with Engine(vllm.script) as engine, watched(engine.port) as admitter:
            (one,) = admitter.instances
            before_it = one.policy
            vllm.blocks, vllm.generated = 33, 5
            await until(lambda: one.policy is not before_it)
            assert one.capacity is not None and one.capacity.layout.usable_blocks == 32
            assert one.restarts >= 1

    run(story)


def test_replicas_behind_one_address_have_their_pools_together() -> None:
    async def story() -> None:
        vllm = Vllm()
        one_has = vllm._metrics()
        vllm.metrics = one_has + one_has.replace(b'engine="0"', b'engine="1"')
        async with Engine(vllm.script) as engine, watched(engine.port) as admitter:
            (one,) = admitter.instances
            await until(lambda: one.view(0).free_blocks == 2 * 63)
            assert "2 replicas" in admitter.notes[0]

    run(story)


def test_what_others_hold_is_seen_and_what_is_silent_makes_careful() -> None:
    async def story() -> None:
        vllm = Vllm()
        async with (
            Engine(vllm.script) as engine,
            watched(engine.port, goal=Goal.DEADLINES) as admitter,
            before(admitter, engine.port) as gateway,
        ):
            (one,) = admitter.instances
            vllm.usage = 60 / 63
            await until(lambda: one.reconciled.foreign_blocks == 60)
            full = asyncio.create_task(
                ask(gateway.port, request(max_tokens=100, messages=[{"content": "x" * 100}]))
            )
            await until(lambda: gateway.desk.waiting == 1)
            vllm.usage = 0.0
            assert (await full).status == 200
            vllm.answers_metrics = False
            readings = one.readings
            now = gateway.clock_ns() + 60 * 10**9
            assert one.view(now).used_blocks == 6 and one.policy.is_careful
            assert (await ask(gateway.port, request(max_tokens=10))).status == 200  # careful, not dead
            assert one.readings <= readings + 1

    run(story)


def test_an_engine_without_metrics_is_served_by_the_books_alone() -> None:
    async def story() -> None:
        given = Given(engine="vllm", pool_tokens=1024, max_model_len=512)
        async with (
            Engine(
                lambda call: call.whole() if "chat" in call.path else call.whole(b"", status=b"404 No")
            ) as engine,
            watched(engine.port, given=given) as admitter,
            before(admitter, engine.port) as gateway,
        ):
            (one,) = admitter.instances
            assert one.takes_new and one.capacity is not None and one.capacity.layout.usable_blocks == 1024
            assert (await ask(gateway.port, request(max_tokens=10))).status == 200
            await until(lambda: one.readings > 1)
            state = admitter.instance_states(gateway.clock_ns())[0]
            assert (state.is_up, state.is_careful, state.used_blocks) == (True, True, None)
            assert state.booked_blocks == 0

    run(story)


def test_one_that_does_not_say_what_it_has_is_not_opened_and_why_is_told() -> None:
    async def story() -> None:
        async with Engine(lambda call: call.whole(b"{}")) as engine, watched(engine.port) as admitter:
            assert not admitter.instances[0].takes_new
            assert "manifest" in admitter.problems[0]

    run(story)


@pytest.mark.parametrize(
    "metrics",
    [
        b"",
        b"\x00\xff" * 1000,
        b'vllm:kv_cache_usage_perc{engine="0"} NaN\nvllm:generation_tokens_total -5\n',
        b'vllm:kv_cache_usage_perc{engine="0"} 1e300\nvllm:num_requests_running 1e18\n',
        b'vllm:kv_cache_usage_perc{engine="' + b"x" * 70_000 + b"\n" * 100_000,
        b"x" * (5 << 20),
    ],
)
def test_metrics_that_are_none_change_nothing(metrics: bytes) -> None:
    async def story() -> None:
        vllm = Vllm()
        async with Engine(vllm.script) as engine, watched(engine.port) as admitter:
            (one,) = admitter.instances
            vllm.metrics = metrics
            asked = one.readings + one.failed_readings
            await until(lambda: one.readings + one.failed_readings > asked + 2)
            assert one.takes_new
            assert 0 <= one.view(0).used_blocks <= 63
            vllm.metrics = None
            readings = one.readings
            await until(lambda: one.readings > readings + 1)
            assert one.reconciled.state is not None and one.reconciled.state.used_blocks == 0

    run(story)


def test_two_engines_share_the_requests_and_one_that_dies_leaves_them_to_the_other() -> None:
    async def story() -> None:
        holds = asyncio.Event()

        async def slow(call: Call) -> None:
            if "chat" in call.path:
                await holds.wait()
            await Vllm().script(call)

        async with (
            Engine(slow) as one,
            watched_pair(slow, one) as (other, admitter),
            before(admitter, one.port, other.port) as gateway,
        ):
            asks = [
                asyncio.create_task(ask(gateway.port, request(max_tokens=400, user=str(number))))
                for number in range(6)
            ]
            await until(lambda: gateway.desk.waiting + gateway.desk.admitted == 6)
            placed = [instance.policy.admitted_count for instance in admitter.instances]
            assert min(placed) > 0 and gateway.desk.waiting > 0
            await until(lambda: sum("chat" in call.path for call in one.calls) == placed[0])
            one.stop_listening()
            one.drop_connections()
            await until(lambda: admitter.instances[0].condition is Condition.DOWN)
            holds.set()
            answers = await asyncio.gather(*asks)
            statuses = sorted(answer.status for answer in answers)
            assert statuses.count(502) + statuses.count(503) == placed[0]
            assert statuses.count(200) == 6 - placed[0]

    run(story)


def test_llamacpps_slots_that_hold_more_than_one_has_have_cells_of_their_own() -> None:
    held = [0, 0, 0, 0]

    async def script(call: Call) -> None:
        if call.path == "/slots":
            slots = [
                {"id": place, "n_ctx": 512, "is_processing": False, "n_prompt_tokens": tokens}
                for place, tokens in enumerate(held)
            ]
            await call.whole(json.dumps(slots).encode())
        elif call.path == "/props":
            await call.whole(
                b'{"default_generation_settings":{"n_ctx":512},"total_slots":4,"model_path":"m"}'
            )
        else:
            await call.whole(b"{}", status=b"404 Not Found")

    async def story() -> None:
        async with Engine(script) as engine, watched(engine.port) as admitter:
            (one,) = admitter.instances
            assert (one.block_tokens, one.view(0).free_blocks, len(admitter.notes)) == (1, 512, 1)
            held[:] = [235, 235, 0, 0]  # as many as slots that share 512 were seen to keep
            readings = one.readings
            await until(lambda: one.readings > readings + 2)
            assert one.view(0).free_blocks == 512
            held[2] = 235
            await until(lambda: one.view(0).free_blocks == 2048)
            assert admitter.notes == []

    run(story)


@asynccontextmanager
async def watched_pair(
    script: Callable[[Call], Awaitable[None]], first: Engine
) -> AsyncIterator[tuple[Engine, LiveAdmitter]]:
    async with Engine(script) as other, watched(first.port, other.port, goal=Goal.NO_FAILURE) as admitter:
        yield other, admitter
