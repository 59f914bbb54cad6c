"""The local server of the live page: the page, and an address for questions about prompts.

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
MAX_REQUEST_BYTES = 1_000_000
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)


@dataclass
class RequestGuard:
    """Checks requests. hosts: valid host names with the port. framed: whether a notebook may show the page."""

    hosts: tuple[str, ...]
    framed: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def rejection(self, request: Request) -> str | None:
        """Return why a request is rejected, None if it is valid."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        # Protects against DNS rebinding: other names that are made to point here.
        if host not in self.hosts:
            return "this server does not answer to that host"
        if origin is not None and origin not in {f"http://{h}" for h in self.hosts}:
            return "this server does not answer pages of other origins"
        request_token = request.headers.get("x-headatlas-token") or request.query_params.get("token", "")
        if not secrets.compare_digest(request_token.encode(), self.token.encode()):
            return "the token in the address is missing or of another server: open the address that this server printed"
        return None

    def headers(self) -> dict[str, str]:
        """Return the security headers of every response."""
        ancestors = "'self' http://localhost:* http://127.0.0.1:*" if self.framed else "'none'"
        return {
            "Content-Security-Policy": POLICY.format(ancestors=ancestors),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


def make_app(live: Live, page: Callable[[], str], guard: RequestGuard, queue: ModelQueue) -> Starlette:
    """Make the web application. page: returns the HTML."""

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
        loop = asyncio.get_running_loop()
        messages = asyncio.Queue[Message | None]()

        def send(message: Message | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(messages.put_nowait, message)

        job = queue.put(page_id, place, kind, live.kinds[kind](question), send)

        async def lines() -> AsyncIterator[str]:
            try:
                while (message := await messages.get()) is not None:
                    yield _line(message)
                if job.dropped.is_set():
                    yield '{"dropped": true}\n'
            finally:
                queue.drop(job)  # the page is closed, or has its result

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def alive(request: Request) -> Response:
        return JSONResponse({})

    async def not_found(request: Request, error: Exception) -> Response:
        return _refuse(404, "nothing here")

    routes = [Route("/", show), Route("/ask", ask, methods=["POST"]), Route("/alive", alive)]
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})

    async def check(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
        rejection = guard.rejection(request)
        try:
            response = await respond(request) if rejection is None else _refuse(403, rejection)
        except Exception as error:  # noqa: BLE001  # errors are sent with the same headers
            response = _refuse(500, _as_error(error)["error"])
        response.headers.update(guard.headers())
        return response

    app.add_middleware(BaseHTTPMiddleware, dispatch=check)
    return app


def _as_error(error: Exception) -> Message:
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
        if len(body) > MAX_REQUEST_BYTES:
            raise ValueError(f"a request has at most {MAX_REQUEST_BYTES:,} bytes")
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
    """A server of the live page. `url` is its address, `stop()` ends it. In a notebook it is shown in a frame."""

    def __init__(self, live: Live, page: Callable[[], str], *, host: str, port: int, framed: bool = False) -> None:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
            # Without this, small answers are delayed by 40 ms.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as e:
            raise BadArgument(f"cannot listen on {host}, port {port}: {one_line(e)}") from e
        port = self._socket.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        names = LOOPBACK if name in LOOPBACK else (name, *LOOPBACK, socket.gethostname())
        self.guard = RequestGuard(tuple(f"{n}:{port}" for n in names), framed)
        self.url = f"http://{name}:{port}/?token={self.guard.token}"
        self._queue = ModelQueue(_as_error)
        config = uvicorn.Config(
            make_app(live, page, self.guard, self._queue),
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,  # seconds for unfinished answers
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until interrupted."""
        # The model answers in this thread, in which it was loaded: in another one, OpenMP threads do not spin, and a
        # forward pass of a small model takes 1.5 times as long.
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
        """Stop serving. The model is free when this returns."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._queue.stop()
        self._socket.close()

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="900" style="border:0" title="HeadAtlas"></iframe>'

    def __repr__(self) -> str:
        return f"HeadAtlas at {self.url}"
