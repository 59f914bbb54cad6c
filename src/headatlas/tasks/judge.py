"""A judge at an endpoint: is an answer right, and which of its words carry the meaning? One request for each answer."""

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
    right: bool
    pieces: list[int]


@dataclass
class Judge:
    """Where to ask. When the endpoint does not answer, the judge is given up, with a warning.

    folder: where replies are kept; without one, they last as long as the judge.
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
        """What the judge says; None when it cannot be asked or cannot be understood."""
        prompt = PROMPT.format(
            question=in_words(question),
            reference=question.answer,
            answer=answer,
            pieces=" ".join(f"{i}:{p!r}" for i, p in enumerate(pieces)),
            k=k,
        )
        key = hashlib.sha256(f"{self.endpoint}\n{self.model}\n{prompt}".encode()).hexdigest()[:32]
        if (known := self._known(key)) is not None:
            return _understand(known, len(pieces), k)
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
            log.warning("judge: %s; going on without it", e)
            return None
        verdict = _understand(reply, len(pieces), k)
        if verdict is not None:  # what cannot be understood is asked again next time
            self._keep(key, reply)
        return verdict

    def _known(self, key: str) -> str | None:
        """A reply that was kept."""
        if key not in self.replies and self.folder is not None:
            with suppress(OSError, UnicodeDecodeError):
                self.replies[key] = (self.folder / f"{key}.txt").read_text(encoding="utf-8")
        return self.replies.get(key)

    def _keep(self, key: str, reply: str) -> None:
        self.replies[key] = reply
        if self.folder is None:
            return
        try:
            with atomic_file(self.folder / f"{key}.txt") as aside:
                aside.write_text(reply, encoding="utf-8")
        except CannotDo as e:
            log.warning("judge: %s; its replies are not kept", e)
            self.folder = None


def _understand(reply: str, n: int, k: int) -> Verdict | None:
    """Models wrap JSON in prose and fences: take the outermost braces."""
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
