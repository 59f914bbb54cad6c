"""The local server of the live page: a page, and one address for questions about prompts.

Whoever can reach the port can reach the model, so every request must carry a random token, name a host that the server
was started for, and come from its own page. Nothing in a request names a file or a model.
"""

import asyncio
import json
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headatlas.errors import BadArgument, HeadAtlasError, check_choice, one_line
from headatlas.live.answers import Live
from headatlas.live.question import read_question
from headatlas.live.queue import Message, ModelQueue

log = logging.getLogger(__name__)
MOST_BYTES = 1_000_000  # of a request
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)


@dataclass
class Door:
    """Who may come in. hosts: names in requests, with the port. framed: whether a notebook may show the page."""

    hosts: tuple[str, ...]
    framed: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def why_not(self, request: Request) -> str | None:
        """What is wrong with a request, if anything."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self.hosts:  # a name that was made to point here (DNS rebinding)
            return "this server does not answer to that host"
        if origin is not None and origin not in {f"http://{h}" for h in self.hosts}:
            return "this server does not answer pages of other origins"
        given = request.headers.get("x-headatlas-token") or request.query_params.get("token", "")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return "the token in the address is missing or not this server's: open the address that was printed"
        return None

    def headers(self) -> dict[str, str]:
        ancestors = "'self' http://localhost:* http://127.0.0.1:*" if self.framed else "'none'"
        return {
            "Content-Security-Policy": POLICY.format(ancestors=ancestors),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


def make_app(live: Live, page: Callable[[], str], door: Door, queue: ModelQueue) -> Starlette:
    """page: the HTML."""

    async def show(request: Request) -> Response:
        return HTMLResponse(await asyncio.to_thread(page))

    async def ask(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refuse(415, "expected application/json")
        try:
            body = await _body(request)
        except ValueError as e:
            return _refuse(413, str(e))
        try:
            values = _object(body)
            kind, page_id, place = (_name(values, name) for name in ("kind", "page", "place"))
            check_choice("kind", kind, live.kinds)
            question = await asyncio.to_thread(read_question, live.lm, values)
        except BadArgument as e:
            return _refuse(400, str(e))
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Message | None]()

        def tell(message: Message | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(told.put_nowait, message)

        job = queue.put(page_id, place, kind, live.kinds[kind](question), tell)

        async def lines() -> AsyncIterator[str]:
            try:
                while (message := await told.get()) is not None:
                    yield _line(message)
                if job.dropped.is_set():
                    yield '{"dropped": true}\n'
            finally:
                queue.drop(job)  # the page has gone, or has what it wanted

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def alive(request: Request) -> Response:
        return JSONResponse({})

    async def not_found(request: Request, error: Exception) -> Response:
        return _refuse(404, "nothing here")

    routes = [Route("/", show), Route("/ask", ask, methods=["POST"]), Route("/alive", alive)]
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})

    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        why_not = door.why_not(request)
        try:
            response = await go_on(request) if why_not is None else _refuse(403, why_not)
        except Exception as error:  # noqa: BLE001  # what fails in here goes out with the same headers
            response = _refuse(500, _told(error)["error"])
        response.headers.update(door.headers())
        return response

    app.add_middleware(BaseHTTPMiddleware, dispatch=guard)
    return app


def _told(error: Exception) -> Message:
    if not isinstance(error, HeadAtlasError):
        log.error("a question could not be answered", exc_info=error)
    return {"error": one_line(error)}


def _line(message: Message) -> str:
    try:
        return json.dumps(message, allow_nan=False) + "\n"
    except ValueError:  # JSON has no NaN
        return json.dumps({"error": "the model gives numbers that are not finite (NaN)"}) + "\n"


def _refuse(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status_code=status)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError(f"a request has at most {MOST_BYTES:,} bytes")
    return body


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise BadArgument(f"the request is not JSON: {one_line(e)}") from e
    if not isinstance(values, dict):
        raise BadArgument(f"the request is a {type(values).__name__}, expected an object")
    return values


def _name(values: dict[str, Any], name: str) -> str:
    value = values.pop(name, None)
    if not isinstance(value, str) or not 0 < len(value) <= 64:
        raise BadArgument(f"{name} must be a short text")
    return value


class Server:
    """A page being served. `url` opens it; `stop()` ends it. In a notebook it shows itself in a frame."""

    def __init__(self, live: Live, page: Callable[[], str], *, host: str, port: int, framed: bool = False) -> None:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small answers wait 40 ms
        except OSError as e:
            raise BadArgument(f"cannot listen on {host}, port {port}: {one_line(e)}") from e
        port = self._socket.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        names = LOOPBACK if name in LOOPBACK else (name, *LOOPBACK, socket.gethostname())
        self.door = Door(tuple(f"{n}:{port}" for n in names), framed)
        self.url = f"http://{name}:{port}/?token={self.door.token}"
        self._queue = ModelQueue(_told)
        config = uvicorn.Config(
            make_app(live, page, self.door, self._queue),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,  # seconds that answers under way may still take
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until interrupted. The model answers in this thread: where it was loaded, its own threads are quickest
        (OpenMP's of a second thread do not spin, which made a forward pass of a small model 1.5 times as long)."""
        self._listen()
        try:
            self._queue.work()
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def start(self) -> "Server":
        """Serve in the background."""
        self._queue.start()
        self._listen()
        return self

    def _listen(self) -> None:
        def listen() -> None:
            self._server.run(sockets=[self._socket])
            self._queue.end()

        self._thread = threading.Thread(target=listen, name="view", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it. The model is free when this returns."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._queue.stop()
        self._socket.close()

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="900" style="border:0" title="HeadAtlas"></iframe>'

    def __repr__(self) -> str:
        return f"HeadAtlas at {self.url}"
