"""Ask a language model at an OpenAI-compatible endpoint that the user names. Nothing is sent anywhere else."""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from headatlas.errors import BadArgument, CannotDo, one_line


class Refused(CannotDo):
    """The endpoint answers but refuses this request; other requests may succeed."""


def check_endpoint(name: str, endpoint: str) -> None:
    """Check that an endpoint is an HTTP address. name: the argument, for errors."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # the port is not a number
        valid = False
    if not valid or any(c.isspace() for c in endpoint):
        raise BadArgument(
            f"{name} is {endpoint!r}, expected the address of an endpoint such as http://localhost:8000/v1"
        )


def ask_endpoint(
    endpoint: str, model: str, prompt: str, *, timeout: float = 60.0, tries: int = 1, pause: float = 1.0
) -> str:
    """Return the model's reply, retrying after pauses that double. The key is read from OPENAI_API_KEY, if set."""
    content = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/chat/completions", json.dumps(content).encode(), headers)
    problem = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                text = json.load(reply)["choices"][0]["message"]["content"]
            if isinstance(text, str) and text.strip():
                return text.strip()
            problem = f"the reply is {text!r}"
        except urllib.error.HTTPError as e:
            problem = one_line(e)
            e.close()
            if e.code in (400, 413, 422):
                raise Refused(f"{endpoint} refused: {problem}") from e
        except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError) as e:
            problem = one_line(e)
    raise CannotDo(f"{endpoint} gave no answer{f' in {tries} tries' * (tries > 1)}: {problem}")
