"""A language model at an OpenAI-compatible endpoint that the user names. Nothing is sent anywhere otherwise."""

import json
import os
import urllib.error
import urllib.request

from headatlas.errors import BadArgument, CannotDo, one_line


def check_endpoint(name: str, endpoint: str) -> None:
    if not endpoint.startswith(("http://", "https://")):
        raise BadArgument(
            f"{name} is {endpoint!r}, expected the address of an endpoint such as http://localhost:8000/v1"
        )


def ask_endpoint(endpoint: str, model: str, prompt: str, *, timeout: float = 60.0, tries: int = 1) -> str:
    """The model's reply. The key, where one is needed, is read from OPENAI_API_KEY."""
    content = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/chat/completions", json.dumps(content).encode(), headers)
    for left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return str(json.load(reply)["choices"][0]["message"]["content"]).strip()
        except (OSError, ValueError, KeyError, IndexError, TypeError) as e:
            if isinstance(e, urllib.error.HTTPError):
                e.close()
            if not left:
                raise CannotDo(f"{endpoint} gave no answer{f' in {tries} tries' * (tries > 1)}: {one_line(e)}") from e
    raise BadArgument(f"tries is {tries}, expected at least 1")
