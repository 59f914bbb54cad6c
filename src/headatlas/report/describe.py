"""A sentence about a head from a language model at an endpoint the user names. Nothing is sent anywhere otherwise."""

import json
import os
import urllib.error
import urllib.request

import xarray as xr

from headatlas.errors import BadArgument, CannotDo, one_line

PROMPT = (
    "An attention head of a language model maps tokens to tokens. Below are the tokens it amplifies most, each with the tokens it"
    " promotes most. Say in one or two sentences what the head seems to do, or that no pattern is visible.\n\n"
)


def describe_operations(operations: xr.Dataset, endpoint: str, model: str, timeout: float = 60.0) -> str:
    """Ask `endpoint` (such as http://localhost:8000/v1) what a head's salient operations have in common.

    The key, where one is needed, is read from OPENAI_API_KEY.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise BadArgument(
            f"describe is {endpoint!r}, expected the address of an endpoint such as http://localhost:8000/v1"
        )
    lines = [
        f"{token!r} → {', '.join(map(repr, strongest))}"
        for token, strongest in zip(operations.token.values, operations.strongest.values, strict=True)
    ]
    content = {"model": model, "messages": [{"role": "user", "content": PROMPT + "\n".join(lines)}], "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/chat/completions", json.dumps(content).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return str(json.load(reply)["choices"][0]["message"]["content"]).strip()
    except (OSError, urllib.error.URLError, ValueError, KeyError, IndexError, TypeError) as e:
        raise CannotDo(f"describe: {endpoint} gave no description: {one_line(e)}") from e
