"""The live page's server through real connections: who is let in, what is refused, and who gets which answer."""

import http.client
import json
import logging
import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from headatlas.errors import BadArgument
from headatlas.live.answers import Live
from headatlas.live.question import Question
from headatlas.live.server import MAX_REQUEST_BYTES, Server
from headatlas.models.lm import LM
from tests.models.tiny import TINY, build, tokenizer

PAGE = "<!doctype html><title>a page</title>"
BASIC = {"kind": "next", "page": "p", "place": "prompt", "prompt": "w1 w2"}
LONG_ENOUGH = 20  # seconds, after which a test has failed


@pytest.fixture(scope="module")
def live() -> Live:
    return Live(LM(build(TINY[0]), tokenizer(), "tiny"))


@pytest.fixture(scope="module")
def server(live) -> Iterator[Server]:
    server = Server(live, lambda: PAGE, host="127.0.0.1", port=0).start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def plain_log(monkeypatch) -> None:
    """Tracebacks are parsed to be printed, which Python 3.11 cannot do in two threads at once (its issue 106905)."""
    monkeypatch.setattr(logging.Formatter, "formatException", lambda self, info: repr(info[1]))


class Reply(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.text.splitlines()]


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=LONG_ENOUGH)


def request(
    server: Server,
    path: str = "/",
    body: Any = None,
    *,
    method: str | None = None,
    token: str | None = "right",
    **headers: str,
) -> Reply:
    """headers: with _ for -. token: 'right' is the server's own, None sends none."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["X-HeadAtlas-Token"] = server.guard.token if token == "right" else token
    connection = connect(server)
    try:
        chunked = not isinstance(body, bytes | str | None)
        connection.request(method or ("GET" if body is None else "POST"), path, body, sent, encode_chunked=chunked)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def ask(server: Server, **values: Any) -> Reply:
    return request(server, "/ask", json.dumps(BASIC | values), Content_Type="application/json")


def refused(reply: Reply, *statuses: int) -> str:
    """Return the reason, which is the last line of an answer."""
    assert reply.status in statuses
    why = reply.lines[-1]["error"]
    assert set(reply.lines[-1]) == {"error"}
    assert why.strip()
    assert "\n" not in why
    assert len(why) < 500
    check_headers(reply)
    return why


def check_headers(reply: Reply) -> None:
    policy = reply.headers["Content-Security-Policy"]
    for rule in ("default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"):
        assert rule in policy
    assert policy.endswith("frame-ancestors 'none'")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"


# --- who is let in


def test_only_this_machine_can_reach_it(server) -> None:
    assert server._socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", urlsplit(server.url).port), timeout=LONG_ENOUGH)


def test_the_address_that_is_printed_opens_the_page(server) -> None:
    address = urlsplit(server.url)
    assert address.hostname == "127.0.0.1"
    reply = request(server, f"{address.path}?{address.query}", token=None)
    assert (reply.status, reply.text) == (200, PAGE)
    check_headers(reply)
    assert server.url in repr(server)
    assert f'src="{server.url}"' in server._repr_html_()


@pytest.mark.parametrize("path", ["/", "/alive", "/ask", "/nothing"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ÿ"])
def test_nobody_comes_in_without_the_token(server, path, token) -> None:
    body = json.dumps(BASIC) if path == "/ask" else None
    assert "token" in refused(request(server, path, body, token=token, Content_Type="application/json"), 403)
    query = f"{path}?token={'' if token is None else 'wrong'}"
    assert "token" in refused(request(server, query, body, token=None, Content_Type="application/json"), 403)


def test_the_token_may_stand_in_a_header_or_in_the_address(server) -> None:
    token = server.guard.token
    for path, given in (("/alive", token), (f"/alive?token={token}", None)):
        assert request(server, path, token=given).status == 200
    body = json.dumps(BASIC)
    reply = request(server, f"/ask?token={token}", body, token=None, Content_Type="application/json")
    assert "result" in reply.lines[-1]
    assert "token" in refused(request(server, f"/alive?token={token}", token="wrong"), 403)


def test_every_server_has_a_token_of_its_own(server, live) -> None:
    other = Server(live, lambda: PAGE, host="127.0.0.1", port=0)
    other._socket.close()
    assert other.guard.token != server.guard.token
    assert len(other.guard.token) >= 32


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1:1"]
)
def test_a_name_that_was_made_to_point_here_gets_nothing(server, host) -> None:
    host = host.format(port=urlsplit(server.url).port)
    for path in ("/", "/alive"):
        reply = request(server, path, Host=host)
        assert "host" in refused(reply, 403)
        assert PAGE not in reply.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_this_machines_own_names_are_answered(server, host) -> None:
    name = f"{host}:{urlsplit(server.url).port}"
    assert request(server, Host=name, Origin=f"http://{name}").text == PAGE


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://{own}", "http://127.0.0.1", "http://{own}.x"]
)
def test_pages_of_other_origins_get_nothing(server, origin) -> None:
    origin = origin.format(own=urlsplit(server.url).netloc)
    reply = request(server, "/ask", json.dumps(BASIC), Origin=origin, Content_Type="application/json")
    assert "origin" in refused(reply, 403)
    assert "origin" in refused(request(server, "/ask", method="OPTIONS", Origin=origin), 403)
    assert "Access-Control-Allow-Origin" not in reply.headers


# --- what is refused


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//evil",
        "//etc/passwd",
        "/ask/../../../../etc/passwd",
        "/page.css",
        "/static/../../etc/passwd",
        "/ask",
        "/?file=/etc/passwd",
    ],
)
def test_no_other_path_gives_anything(server, path) -> None:
    reply = request(server, path)
    assert "root:" not in reply.text
    if path.startswith("/?"):
        assert reply.text == PAGE
    else:
        assert refused(reply, 404) == "nothing here"
        assert "nothing here" in refused(request(server, path, method="DELETE"), 404)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp", None])
def test_a_form_of_another_page_cannot_ask(server, kind) -> None:
    headers = {} if kind is None else {"Content_Type": kind}
    assert refused(request(server, "/ask", json.dumps(BASIC), **headers), 415) == "expected application/json"


def test_a_content_type_may_name_its_characters(server) -> None:
    reply = request(server, "/ask", json.dumps(BASIC), Content_Type="application/json; charset=utf-8")
    assert "result" in reply.lines[-1]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_has_a_largest_size(server, chunked) -> None:
    start = json.dumps(BASIC).encode()
    fits, too_long = (start + b" " * (MAX_REQUEST_BYTES + more - len(start)) for more in (0, 1))
    for body, status in ((fits, 200), (too_long, 413)):
        parts = iter([body[i : i + 2**16] for i in range(0, len(body), 2**16)]) if chunked else body
        reply = request(server, "/ask", parts, Content_Type="application/json")
        assert reply.status == status
    assert refused(reply, 413) == "a request has at most 1,000,000 bytes"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\xfa",
        b"{'kind': 'next'}",
        b"[]",
        b"null",
        b'"text"',
        b"5",
        b"NaN",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"kind": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:12].decode(errors="replace"),
)
def test_what_is_not_a_json_object_is_refused(server, body) -> None:
    assert "the request is" in refused(request(server, "/ask", body, Content_Type="application/json"), 400)


@pytest.mark.parametrize("depth", [50, 500, 700, 800, 900, 950, 1000])
@pytest.mark.parametrize("field", ["kind", "prompt", "heads", "target", "layer", "unknown"])
def test_nesting_of_any_depth_is_refused_in_one_line(server, depth, field) -> None:
    body = json.dumps(BASIC)[:-1] + f', "{field}": ' + "[" * depth + "]" * depth + "}"
    refused(request(server, "/ask", body, Content_Type="application/json"), 400)


WRONG: dict[str, list[Any]] = {
    "kind": [None, 5, "", "nothing", "__init__", "reading", ["next"], "n" * 65],
    "page": [None, 5, "", [], "p" * 65],
    "place": [None, True, "", {}, "p" * 65],
    "prompt": [None, 5, "", [], ["w1"], {"a": 1}, True, "w" * 100_001],
    "heads": [
        None,
        5,
        "L0.H0",
        {"0": 1},
        [0],
        [None],
        ["abc"],
        [[0, 0]],
        [[0, 0, 0, 0]],
        [["0", 0, 0]],
        [[0, 0.0, 0]],
        [[True, 0, 0]],
        [[3, 0, 0]],
        [[-1, 0, 0]],
        [[0, 6, 0]],
        [[0, -1, 0]],
        [[10**30, 0, 0]],
        [[0, 0, "0"]],
        [[0, 0, None]],
        [[0, 0, True]],
        [[0, 0, [0]]],
        [[0, 0, -0.1]],
        [[0, 0, 2.1]],
        [[0, 0, math.nan]],
        [[0, 0, math.inf]],
        [[0, 0, -math.inf]],
        [[0, 0, 0]] * 19,
    ],
    "target": [None, 5, [], {}, True, ["w1"], [1.5], [True], [-1], [61], [10**30], [[1]], [1] * 201, "w" * 201],
    "other": [None, 5, [], {}, ["w1"], [-1], [61], [1] * 201, "w" * 201],
    "layer": [None, "0", 0.0, -1, 3, True, [], math.nan, 10**30],
    "head": [None, "0", 0.0, -1, 6, True, [], math.inf],
    "token": [None, "0", 0.0, -2, 100_001, True],
    "draws": [None, "5", 5.0, 0, 201, True],
    "seed": [None, "0", 0.5, -1, 2**31 + 1, True],
    "new": [None, "5", 5.0, 0, 201, True],
    "heads ": [[]],
    "gate": [[]],
    "\ud800": [5],
    "u" * 10_000: [5],
}


@pytest.mark.parametrize("field", WRONG, ids=lambda f: ascii(f[:10]))
def test_a_wrong_value_is_refused_in_one_line(server, field) -> None:
    for value in WRONG[field]:
        why = refused(ask(server, **{field: value}), 400)
        names = [ascii(field[:20]).strip("'"), "scale of L0.H0" if field == "heads" else field]
        assert any(name in why for name in names), value


@pytest.mark.parametrize("scale", [10**400, -(10**400)], ids=["large", "low"])
def test_a_scale_that_no_float_can_hold_is_refused_in_one_line(server, scale) -> None:
    assert "scale of L0.H0" in refused(ask(server, heads=[[0, 0, scale]]), 400)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"prompt": "w1 " * 65}, "65 tokens long, but the model's context is 64"),
        ({"prompt": "w1 " * 60, "target": "w1 w2 w3 w4 w5"}, "65 tokens long, but the model's context is 64"),
        ({"prompt": "w1 " * 60, "other": [1] * 5}, "65 tokens long, but the model's context is 64"),
        ({"prompt": " \n"}, "it has no tokens"),
        ({"prompt": "\ud800"}, ""),
        ({"target": "\ud800"}, ""),
        ({"kind": "writes", "token": 2}, "token is 2, but the prompt has 2 tokens"),
        ({"kind": "control"}, "heads is empty"),
    ],
)
def test_what_shows_itself_later_is_told_in_the_answer(server, values, why) -> None:
    assert why in refused(ask(server, **values), 200)
    assert "result" in ask(server).lines[-1]  # and nothing has ended


# --- answers


@pytest.mark.parametrize("kind", ["next", "attention", "thumbnails", "writes", "direct", "slope", "exact", "control"])
def test_an_answer_is_what_the_model_tells(server, live, kind) -> None:
    reply = ask(server, kind=kind, heads=[[0, 1, 0], [1, 2, 0.5], [2, 2, 1]], layer=1, head=2, target=[5, 6], draws=7)
    question = Question("w1 w2", ((0, 1, 0.0), (1, 2, 0.5)), (5, 6), layer=1, head=2, draws=7)
    assert reply.lines == json.loads(json.dumps(list(live.kinds[kind](question))))
    assert reply.headers["Content-Type"].startswith("application/x-ndjson")
    check_headers(reply)


def test_two_pages_at_once_get_their_own_answers(server, live) -> None:
    def visit(page: str) -> list[tuple[str, Any]]:
        prompts = [f"w{page} w{i} w{j}" for i in range(4) for j in range(2)]
        return [(p, ask(server, page=page, prompt=p, kind="exact", target=[5]).lines[-1]) for p in prompts]

    with ThreadPoolExecutor(3) as pool:
        answers = [one for each in pool.map(visit, "123") for one in each]
    assert len(answers) == 24
    for prompt, answer in answers:
        *_, expected = live.exact(Question(prompt, target=(5,)))
        assert answer == expected


class Endless:
    """A question whose answer does not end by itself, in place of `exact`."""

    def __init__(self) -> None:
        self.closed, self.end = threading.Event(), threading.Event()

    def __call__(self, question: Question) -> Iterator[dict[str, Any]]:
        try:
            while not self.end.wait(0.002):
                yield {"progress": 0}
        finally:
            self.closed.set()


def begin(server: Server, **values: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A question whose answer has begun."""
    connection = connect(server)
    headers = {"X-HeadAtlas-Token": server.guard.token, "Content-Type": "application/json"}
    connection.request("POST", "/ask", json.dumps(BASIC | values), headers)
    answer = connection.getresponse()
    assert json.loads(answer.readline()) == {"progress": 0}
    return connection, answer


def test_a_page_that_goes_away_lets_others_through(server, live, monkeypatch) -> None:
    endless = Endless()
    monkeypatch.setitem(live.kinds, "exact", endless)
    connection, answer = begin(server, page="gone", kind="exact")
    assert "result" in ask(server, page="quick").lines[-1]  # does not wait for it
    answer.close()
    connection.close()
    monkeypatch.undo()
    assert "result" in ask(server, page="stays", kind="exact").lines[-1]  # would wait for ever
    assert endless.closed.wait(LONG_ENOUGH)


def test_a_page_that_asks_anew_is_told_that_the_old_question_is_dropped(server, live, monkeypatch) -> None:
    endless = Endless()
    monkeypatch.setitem(live.kinds, "exact", endless)
    connection, answer = begin(server, page="anew", place="removal", kind="exact")
    assert "result" in ask(server, page="anew", place="prompt").lines[-1]
    *_, last = answer.read().splitlines()
    connection.close()
    assert json.loads(last) == {"dropped": True}
    assert endless.closed.wait(LONG_ENOUGH)


# --- what goes wrong on this side


@pytest.fixture
def broken(live) -> Iterator[Server]:
    def page() -> str:
        raise RuntimeError("no page")

    server = Server(live, page, host="127.0.0.1", port=0).start()
    yield server
    server.stop()


def test_a_page_that_cannot_be_made_is_an_error_in_one_line(broken) -> None:
    refused(request(broken), 500)


@pytest.mark.parametrize("kind", ["next", "writes", "control"])
def test_a_model_that_gives_nan_says_so(kind) -> None:
    lm = LM(build(TINY[0]), tokenizer(), "nan")
    lm.model.model.norm.weight.fill_(math.nan)
    server = Server(Live(lm), lambda: PAGE, host="127.0.0.1", port=0).start()
    try:
        assert set(ask(server, kind=kind, heads=[[0, 0, 0]]).lines[-1]) <= {"error", "result"}
    finally:
        server.stop()


def test_a_port_that_is_taken_is_told_in_one_line(server, live) -> None:
    port = urlsplit(server.url).port
    with pytest.raises(BadArgument, match=f"^cannot listen on 127.0.0.1, port {port}: "):
        Server(live, lambda: PAGE, host="127.0.0.1", port=port)


def test_a_notebook_may_show_the_page_and_nobody_else(live) -> None:
    server = Server(live, lambda: PAGE, host="127.0.0.1", port=0, framed=True).start()
    try:
        policy = request(server).headers["Content-Security-Policy"]
    finally:
        server.stop()
    assert policy.endswith("frame-ancestors 'self' http://localhost:* http://127.0.0.1:*")


def test_a_server_that_was_stopped_is_gone(live) -> None:
    server = Server(live, lambda: PAGE, host="127.0.0.1", port=0).start()
    assert request(server).status == 200
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        request(server)


def test_a_server_that_is_stopped_does_not_wait_for_long_answers(live, monkeypatch) -> None:
    endless, server = Endless(), Server(live, lambda: PAGE, host="127.0.0.1", port=0).start()
    monkeypatch.setitem(live.kinds, "exact", endless)
    connection, answer = begin(server, kind="exact")
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    stopping.join(3)
    stopped = not stopping.is_alive()
    endless.end.set()
    stopping.join(LONG_ENOUGH)
    answer.close()
    connection.close()
    assert stopped
