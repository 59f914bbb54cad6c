"""A judge at an endpoint: is an answer right, and which of its pieces carry the meaning? One request per answer."""

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headatlas.errors import CannotDo
from headatlas.files import atomic_file
from headatlas.tasks.endpoint import Refused, ask_endpoint, check_endpoint
from headatlas.tasks.questions import Question, in_words

log = logging.getLogger(__name__)

PROMPT = """Question:
{question}

Reference answer: {reference}
Given answer: {answer}
The given answer cut into numbered pieces: {pieces}

Reply with JSON only: {{"right": true or false, "pieces": [the numbers of the {k} pieces that carry the answer's \
meaning]}}"""


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and the numbers of the pieces that carry its meaning."""

    right: bool
    pieces: list[int]


@dataclass
class Judge:
    """A language model that judges answers. If its endpoint does not answer, it is given up with a warning.

    folder: cache of replies on disk; without it, they are cached in memory only.
    """

    endpoint: str
    model: str
    folder: Path | None = None
    timeout: float = 30.0
    tries: int = 3
    pause: float = 1.0
    given_up: bool = False
    replies: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.model} at {self.endpoint}"

    def __post_init__(self) -> None:
        check_endpoint("judge", self.endpoint)

    def ask(self, question: Question, answer: str, pieces: Sequence[str], k: int) -> Verdict | None:
        """Ask about an answer; None if the judge gives no reply or one that cannot be parsed."""
        prompt = PROMPT.format(
            question=in_words(question),
            reference=question.answer,
            answer=answer,
            pieces=" ".join(f"{i}:{p!r}" for i, p in enumerate(pieces)),
            k=k,
        )
        key = hashlib.sha256(f"{self.endpoint}\n{self.model}\n{prompt}".encode()).hexdigest()[:32]
        if (cached := self._cached(key)) is not None:
            return _parse(cached, len(pieces), k)
        if self.given_up:
            return None
        try:
            reply = ask_endpoint(
                self.endpoint, self.model, prompt, timeout=self.timeout, tries=self.tries, pause=self.pause
            )
        except Refused as e:
            log.warning("judge: %s; this answer is judged offline", e)
            return None
        except CannotDo as e:
            self.given_up = True
            log.warning("judge: %s; answers are judged offline from now on", e)
            return None
        verdict = _parse(reply, len(pieces), k)
        # Replies that cannot be parsed are not cached, so that the next run asks the judge again.
        if verdict is not None:
            self._cache(key, reply)
        return verdict

    def _cached(self, key: str) -> str | None:
        """Return a cached reply."""
        if key not in self.replies and self.folder is not None:
            with suppress(OSError, UnicodeDecodeError):
                self.replies[key] = (self.folder / f"{key}.txt").read_text(encoding="utf-8")
        return self.replies.get(key)

    def _cache(self, key: str, reply: str) -> None:
        self.replies[key] = reply
        if self.folder is None:
            return
        try:
            with atomic_file(self.folder / f"{key}.txt") as temporary:
                temporary.write_text(reply, encoding="utf-8")
        except CannotDo as e:
            log.warning("judge: %s; its replies are not cached on disk", e)
            self.folder = None


def _parse(reply: str, n: int, k: int) -> Verdict | None:
    """Parse a verdict on n pieces; None if the reply has none."""
    # Models wrap JSON in prose and fences, so take the outermost braces.
    match = re.search(r"\{.*\}", reply, flags=re.DOTALL)
    try:
        content = json.loads(match[0]) if match else None
    except ValueError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("right"), bool):
        return None
    listed = content.get("pieces")
    pieces = [i for i in listed if isinstance(i, int) and 0 <= i < n] if isinstance(listed, list) else []
    return Verdict(content["right"], sorted(set(pieces))[:k])
