"""The server of the page: its files, what it asks, what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vramledger.errors import InputError, VramledgerError
from vramledger.web import assets
from vramledger.web.ask import Ask, CommandLine, command_line
from vramledger.web.catalogue import catalogue
from vramledger.web.guard import App, Door, Guard
from vramledger.web.live import Lookout
from vramledger.web.page import page
from vramledger.web.replies import answer, as_line, asked, document_in, said
from vramledger.web.sights import Sights
from vramledger.web.uploads import Uploads
from vramledger.web.workers import BUSY, Busy, Reply, Workers


def make_app(
    *, door: Door, workers: Workers, folder: Path, sights: Sights, command: Sequence[str]
) -> tuple[App, Callable[[], Awaitable[None]]]:
    """The whole server as an ASGI application, and what ends all that it runs; `folder` is where uploads go, which the caller removes. `sights`
    are what may be looked at while it runs, and `command` starts `vramledger` for that."""
    uploads = Uploads(folder)
    lookout = Lookout(command, sights, uploads)
    written, policy = page(door.token)

    async def index(_request: Request) -> Response:
        return Response(written, media_type="text/html", headers={"cache-control": "no-store"})

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        kind = assets.files().get(name)
        if kind is None:
            return Response("there is no such file\n", 404, media_type="text/plain")
        return Response(
            (assets.STATIC / name).read_bytes(), media_type=kind, headers={"cache-control": "no-cache"}
        )

    async def known(_request: Request) -> Response:
        return Response(catalogue(), media_type="application/json", headers={"cache-control": "no-store"})

    async def upload(request: Request) -> Response:
        try:
            size = request.query_params.get("size")
            if size is not None and not (size.isascii() and size.isdigit() and len(size) < 16):
                raise InputError("the size is no whole number", size=size[:40])
            added = await uploads.add(
                request.query_params.get("name", ""),
                request.stream(),
                stated_bytes=None if size is None else int(size),
                into=request.query_params.get("into"),
            )
        except VramledgerError as problem:
            return answer({"error": problem.message}, 400)
        except ClientDisconnect:
            return answer({"error": "the file was cut off"}, 400)
        return answer({"id": added.id, "names": added.names, "bytes": added.size_bytes})

    async def run(request: Request) -> Response:
        try:
            line = command_line(await asked(request, Ask), uploads.find)
        except VramledgerError as problem:
            return answer({"error": problem.message}, 400)
        return StreamingResponse(
            _answered(workers, line), media_type="application/x-ndjson", headers={"cache-control": "no-store"}
        )

    @asynccontextmanager
    async def alive(_app: Starlette) -> AsyncIterator[None]:
        await workers.start()
        try:
            yield
        finally:
            await end()

    async def end() -> None:
        await asyncio.gather(workers.end(), lookout.end())

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/static/{name:path}", static),
            Route("/api/catalogue", known),
            Route("/api/uploads", upload, methods=["POST"]),
            Route("/api/run", run, methods=["POST"]),
            *lookout.routes(),
        ],
        lifespan=alive,
    )
    return Guard(app, door=door, policy=policy), end


async def _answered(workers: Workers, line: CommandLine) -> AsyncIterator[bytes]:
    """Lines of JSON: how far it is, then the answer."""
    try:
        async for part in workers.run(line.arguments, is_long=line.is_long):
            if isinstance(part, Reply):
                yield as_line(_answer(line, part))
            else:
                yield as_line({"told": part.told})
    except Busy:
        busy = Reply(
            exit_code=BUSY,
            out="",
            err="as many long commands run as this page runs at once: wait, or cancel one",
        )
        yield as_line(_answer(line, busy))


def _answer(line: CommandLine, reply: Reply) -> dict[str, object]:
    return {
        "exit_code": reply.exit_code,
        "command": line.shown,
        "message": said(line.as_typed(reply.err)),
        "document": document_in(line.as_typed(reply.out).encode()),
    }


def names_of(hosts: Sequence[str], port: int) -> frozenset[str]:
    """The Host headers that a browser sends for these names: of port 80 without the port."""
    named = [f"[{host}]" if ":" in host else host.lower() for host in hosts]
    return frozenset([f"{name}:{port}" for name in named] + (named if port == 80 else []))
