"""The sequences that planted models are trained on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headatlas_bench.functions import BACKGROUND, FUNCTIONS, WORDS, Draw
from headatlas_bench.known import MOST_SEEDS

POOL = 2**16  # sequences of each function that training draws from


class Pool:
    """Sequences of every function, on the device; drawn from with replacement."""

    def __init__(self, names: Sequence[str], seed: int, device: torch.device, times: Sequence[int] = ()) -> None:
        numbers = {name: i for i, name in enumerate((*FUNCTIONS, "background"))}
        every = {**FUNCTIONS, "background": BACKGROUND}
        made = [every[name].make(Draw(POOL, 16 * seed + numbers[name], device)) for name in names]
        self.tokens, self.answers = (torch.stack([getattr(b, part) for b in made]) for part in ("tokens", "answers"))
        shares = torch.tensor([every[name].share for name in names], device=device)
        shares = shares * torch.tensor(times, device=device) if times else shares
        self.which = torch.arange(len(names), device=device).repeat_interleave(shares)
        self.generator, self.picks = (torch.Generator(device).manual_seed(s) for s in (seed, MOST_SEEDS + seed))

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Function [sequence], words and answers [sequence, LENGTH] of a training step."""
        i = torch.randint(POOL, self.which.shape, generator=self.generator, device=self.which.device)
        return self.which, self.tokens[self.which, i], self.answers[self.which, i]

    def chance(self, n: int) -> Tensor:
        return torch.rand(n, generator=self.generator, device=self.which.device)

    def pick(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.picks, device=self.which.device)

    def answer_words(self) -> Tensor:
        """The share of each word among the answers [function, word]: the best guess without reading the question."""
        pairs = zip(self.tokens, self.answers, strict=True)
        counts = torch.stack([torch.bincount(t[a], minlength=len(WORDS)) for t, a in pairs])
        return counts / counts.sum(1, keepdim=True)
