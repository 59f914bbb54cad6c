"""The sequences that planted models are trained on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headatlas_bench.functions import BACKGROUND, FUNCTIONS, WORDS, Draw
from headatlas_bench.ground_truth import MAX_SEEDS

SEQUENCES_PER_FUNCTION = 2**16


class TrainingData:
    """A pool of sequences of every function, on the device, to draw from with replacement.

    multipliers: factors on the number of sequences that each function gets in a training step (default: 1 each).
    """

    def __init__(self, names: Sequence[str], seed: int, device: torch.device, multipliers: Sequence[int] = ()) -> None:
        numbers = {name: i for i, name in enumerate((*FUNCTIONS, "background"))}
        functions = {**FUNCTIONS, "background": BACKGROUND}
        pool_batches = [
            functions[name].make(Draw(SEQUENCES_PER_FUNCTION, 16 * seed + numbers[name], device)) for name in names
        ]
        self.tokens = torch.stack([batch.tokens for batch in pool_batches])
        self.answers = torch.stack([batch.answers for batch in pool_batches])
        counts = torch.tensor([functions[name].sequences_per_step for name in names], device=device)
        if multipliers:
            counts = counts * torch.tensor(multipliers, device=device)
        self.schedule = torch.arange(len(names), device=device).repeat_interleave(counts)
        self.generator = torch.Generator(device).manual_seed(seed)
        # A separate generator: sequences are the same for every design of circuits.
        self.choice_generator = torch.Generator(device).manual_seed(MAX_SEEDS + seed)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Draw one training step: function index [sequence], tokens and answers [sequence, LENGTH]."""
        row = torch.randint(
            SEQUENCES_PER_FUNCTION, self.schedule.shape, generator=self.generator, device=self.schedule.device
        )
        return self.schedule, self.tokens[self.schedule, row], self.answers[self.schedule, row]

    def draw_chances(self, n: int) -> Tensor:
        """Draw n uniform numbers, from the generator of the sequences."""
        return torch.rand(n, generator=self.generator, device=self.schedule.device)

    def draw_choices(self, *shape: int) -> Tensor:
        """Draw uniform numbers that select parts of circuits, from a separate generator."""
        return torch.rand(shape, generator=self.choice_generator, device=self.schedule.device)

    def answer_words(self) -> Tensor:
        """Return the share of each word among the answers [function, word]: the best guess without the question."""
        pairs = zip(self.tokens, self.answers, strict=True)
        counts = torch.stack([torch.bincount(t[a], minlength=len(WORDS)) for t, a in pairs])
        return counts / counts.sum(1, keepdim=True)
