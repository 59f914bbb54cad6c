"""A language model at an OpenAI-compatible endpoint that the user names. Nothing is sent anywhere otherwise."""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from headatlas.errors import BadArgument, CannotDo, one_line


class Refused(CannotDo):
    """The endpoint answers, but does not take this request: another may do."""


def check_endpoint(name: str, endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number
        good = False
    if not good or any(c.isspace() for c in endpoint):
        raise BadArgument(
            f"{name} is {endpoint!r}, expected the address of an endpoint such as http://localhost:8000/v1"
        )


def ask_endpoint(
    endpoint: str, model: str, prompt: str, *, timeout: float = 60.0, tries: int = 1, pause: float = 1.0
) -> str:
    """The model's reply. Tries again after a pause that doubles. A key is read from OPENAI_API_KEY, if it is set."""
    content = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/chat/completions", json.dumps(content).encode(), headers)
    problem = ""
    for number in range(tries):
        if number:
            time.sleep(pause * 2 ** (number - 1))
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
