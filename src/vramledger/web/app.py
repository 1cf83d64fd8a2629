"""The server of the page: its files, what it asks, what it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vramledger.errors import InputError, VramledgerError
from vramledger.web import assets
from vramledger.web.ask import Ask, CommandLine, command_line
from vramledger.web.catalogue import catalogue
from vramledger.web.guard import App, Door, Guard
from vramledger.web.page import page
from vramledger.web.uploads import Uploads
from vramledger.web.workers import Busy, Reply, Workers

LARGEST_ASK_BYTES = 1_000_000


def make_app(*, door: Door, workers: Workers, folder: Path) -> App:
    """The whole server as an ASGI application; `folder` is where uploads go, which the caller removes."""
    uploads = Uploads(folder)
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
            return _json({"error": problem.message}, 400)
        return _json({"id": added.id, "names": added.names, "bytes": added.size_bytes})

    async def run(request: Request) -> Response:
        try:
            line = command_line(msgspec.json.decode(await _body(request), type=Ask), uploads.find)
        except msgspec.MsgspecError as problem:
            return _json({"error": f"this is no question: {problem}"}, 400)
        except VramledgerError as problem:
            return _json({"error": problem.message}, 400)
        return StreamingResponse(
            _answered(workers, line), media_type="application/x-ndjson", headers={"cache-control": "no-store"}
        )

    @asynccontextmanager
    async def alive(_app: Starlette) -> AsyncIterator[None]:
        await workers.start()
        try:
            yield
        finally:
            await workers.end()

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/static/{name:path}", static),
            Route("/api/catalogue", known),
            Route("/api/uploads", upload, methods=["POST"]),
            Route("/api/run", run, methods=["POST"]),
        ],
        lifespan=alive,
    )
    return Guard(app, door=door, policy=policy)


async def _body(request: Request) -> bytes:
    parts = []
    size = 0
    with suppress(ClientDisconnect):
        async for chunk in request.stream():
            size += len(chunk)
            if size > LARGEST_ASK_BYTES:
                raise InputError(f"a question of more than {LARGEST_ASK_BYTES:,} bytes")
            parts.append(chunk)
    return b"".join(parts)


async def _answered(workers: Workers, line: CommandLine) -> AsyncIterator[bytes]:
    """Lines of JSON: how far it is, then the answer."""
    try:
        async for said in workers.run(line.arguments, is_long=line.is_long):
            if isinstance(said, Reply):
                yield _line(_answer(line, said))
            else:
                yield _line({"told": said.told})
    except Busy:
        busy = Reply(
            exit_code=75,
            out="",
            err="as many long commands run as this page runs at once: wait, or cancel one",
        )
        yield _line(_answer(line, busy))


def _answer(line: CommandLine, reply: Reply) -> dict[str, object]:
    document: object = None
    with suppress(msgspec.DecodeError):
        document = (
            msgspec.Raw(msgspec.json.format(line.as_typed(reply.out).encode(), indent=-1))
            if reply.out.strip()
            else None
        )
    message = " ".join(
        part.removeprefix("vramledger: ") for part in line.as_typed(reply.err).splitlines() if part.strip()
    )
    return {"exit_code": reply.exit_code, "command": line.shown, "message": message, "document": document}


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _json(value: object, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value),
        status,
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )


def names_of(hosts: Sequence[str], port: int) -> frozenset[str]:
    """The Host headers that a browser sends for these names."""
    return frozenset(f"[{host}]:{port}" if ":" in host else f"{host.lower()}:{port}" for host in hosts)
