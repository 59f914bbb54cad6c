"""A chat endpoint on this machine that replies what a test wants."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


@pytest.fixture
def endpoint():
    """Replies what `server.says` holds, in turn, the last one for ever: a text; None or a status fails."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.server.path = self.path
            self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = self.server.says[min(len(self.server.requests), len(self.server.says)) - 1]
            self.send_response(503 if content is None else content if isinstance(content, int) else 200)
            self.end_headers()
            reply = {"choices": [{"message": {"content": content}}]}
            self.wfile.write(json.dumps(reply).encode() if content is not None else b"down")

        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.says = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_port}/v1"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
