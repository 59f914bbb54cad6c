"""probe: which cognitive function a head carries (Ma et al. 2025, arXiv 2512.10978). Numbers are the paper's steps.

1. – 3. Answer each question, record z of every head at the answer's tokens, keep the k informative ones
   (`features.py`).
4. A head's feature is the mean of its z over these tokens, beside the mean of that over the heads of its layer: size
   2D.
5. One Linear(2D → 64) shared by all heads, concatenated to 64 N; Linear → 512, ReLU, Dropout 0.3, Linear → classes.
6. Importance of a head for class c, over held-out examples of c: the mean of (∂ logit_c / ∂ projection) · projection
   over the 64 dimensions and over the examples, signed. The map is its absolute value, summing to 1 over heads.
7. The heads of c are those before the elbow of the falling curve of importance.

Beside the published probe: 'per-head', a linear classifier for each head alone, whose importance is its recall above
chance; and two without any classifier: 'written', how much more a head writes in examples of c than in those of other
classes (`written.py`), and 'used', how much of what it gives out the answer depends on (`used.py`).

Ours: training stops where the validation loss is least; importance and accuracy are measured on test questions, with
bootstrap intervals. Labels are shuffled in two ways: another probe is trained on shuffled labels, for its accuracy; and
the labels of the test questions are shuffled, for the importance each head has then. A head is *selected* only if its
interval is above that, too.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from headatlas.errors import CannotDo
from headatlas.methods.probe.examples import CHUNK, Examples
from headatlas.methods.probe.per_head import per_head
from headatlas.methods.probe.settings import PUBLISHED, Training
from headatlas.methods.probe.wording import majority
from headatlas.methods.probe.written import written
from headatlas.progress import Progress, silent

DIMS, HIDDEN = 64, 512  # of a head's projection, of the layer behind


class Probe(nn.Module):
    """Step 5. Takes mean z [example, layer, head, d_head]; the layer's mean over heads is put beside it here."""

    def __init__(
        self, layers: int, heads: int, d_head: int, classes: int, dims: int = DIMS, hidden: int = HIDDEN
    ) -> None:
        super().__init__()
        self.project = nn.Linear(2 * d_head, dims)
        self.hidden = nn.Linear(dims * layers * heads, hidden)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(hidden, classes)

    def projections(self, z: Tensor) -> Tensor:
        """[example, layer, head, dims] = Linear([z, mean over heads of z]), the second half computed once a layer."""
        own, layer = self.project.weight.split(z.shape[-1], dim=1)
        return linear(z, own) + linear(z.mean(2, keepdim=True), layer, self.project.bias)

    def read(self, projections: Tensor) -> Tensor:
        """Logits [example, class]."""
        return self.out(self.drop(torch.relu(self.hidden(projections.flatten(1)))))

    def forward(self, z: Tensor) -> Tensor:
        return self.read(self.projections(z))


@dataclass(frozen=True)
class Fitted:
    probe: Probe
    epochs: int
    validation_loss: list[float]


def fit_probe(
    data: Examples,
    labels: np.ndarray,
    classes: int,
    training: Training,
    *,
    seed: int = 0,
    epochs: int | None = None,
    label: str = "probe",
    progress: Progress = silent,
) -> Fitted:
    """Train on train; keep the weights of the epoch with the least validation loss.

    epochs: train for exactly so many instead, and keep the last weights (the control is trained as long as what it
    controls).
    """
    layers, heads, d_head = data.features.shape[1:]
    target = torch.from_numpy(labels)
    generator = np.random.default_rng([seed, 2])
    with torch.random.fork_rng(devices=[data.device] if data.device.type == "cuda" else []):
        torch.manual_seed(seed)
        probe = Probe(layers, heads, d_head, classes).to(data.device)
        optimiser = torch.optim.AdamW(probe.parameters(), lr=training.lr, fused=True)
        best, kept, losses = 0, copy.deepcopy(probe.state_dict()), [np.inf]
        for epoch in progress(range(1, (epochs or training.epochs) + 1), label):
            if not epochs and epoch - best > training.patience:
                continue  # let the progress bar run out
            probe.train()
            for batch, z in data.batches(generator.permutation(data.train), training.batch):
                optimiser.zero_grad()
                loss = cross_entropy(probe(z), target[batch].to(data.device))
                loss.backward()
                optimiser.step()
            losses.append(_loss(probe, data, target))
            if not np.isfinite(losses[-1]):
                raise CannotDo(f"{label}: the validation loss is {losses[-1]} after epoch {epoch}")
            if epochs or losses[-1] < losses[best]:
                best = epoch
                kept = {name: weight.clone() for name, weight in probe.state_dict().items()}
    probe.load_state_dict(kept)
    return Fitted(probe.eval(), best, losses[1:])


@torch.no_grad()
def _loss(probe: Probe, data: Examples, target: Tensor) -> float:
    probe.eval()
    parts = [
        cross_entropy(probe(z), target[batch].to(data.device), reduction="sum").item()
        for batch, z in data.batches(data.validation, CHUNK)
    ]
    return sum(parts) / len(data.validation)


@torch.no_grad()
def predict(probe: Probe, data: Examples) -> np.ndarray:
    """The class of every test example."""
    return np.concatenate([probe(z).argmax(1).cpu().numpy() for _, z in data.batches(data.test, CHUNK)])


def attributions(probe: Probe, data: Examples, examples: np.ndarray, c: int) -> np.ndarray:
    """Step 6 before the mean over examples: [example, head], heads of all layers in a row."""
    parts = []
    for _, z in data.batches(examples, CHUNK):
        projections = probe.projections(z).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(probe.read(projections)[:, c].sum(), projections)
        parts.append((gradient * projections).detach().mean(-1).flatten(1).double().cpu().numpy())
    return np.concatenate(parts)


# --- from what each example says to a map with intervals


def normalised(weight: np.ndarray) -> np.ndarray:
    """Sums to 1 over the last axis; all equal where nothing has any weight."""
    total = weight.sum(-1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1), 1 / weight.shape[-1])


Weigh = Callable[[np.ndarray], np.ndarray]
"""What a mean over examples counts for: its size for attributions, what lies above chance for classifiers."""


def interval(
    each: np.ndarray, groups: np.ndarray, weigh: Weigh, draws: int, generator: np.random.Generator
) -> np.ndarray:
    """95 % bootstrap interval of the weight of each head's mean, from [example, head]: [2, head]. Groups are drawn."""
    names, group = np.unique(groups, return_inverse=True)
    counts = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)[:, group]
    return np.quantile(weigh(counts @ each / counts.sum(1, keepdims=True)), [0.025, 0.975], axis=0)


def chance_level(
    each: Sequence[np.ndarray],
    labels: np.ndarray,
    groups: np.ndarray,
    weigh: Weigh,
    draws: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The weight that each head reaches for each class, [class, head], with shuffled labels of the test examples.

    each: for every class, what all test examples say, [example, head]. Labels are shuffled within groups, whose
    examples have more in common than labels; examples that are alone, among themselves. In 99 of 100 shuffles no head
    goes beyond its level for any class: levels lie as many standard deviations off as the most extreme head of a
    shuffle does.
    """
    names, group, size = np.unique(groups, return_inverse=True, return_counts=True)
    group = np.where(size[group] == 1, len(names), group)
    home = np.argsort(group, kind="stable")
    orders = np.empty((draws, len(labels)), dtype=labels.dtype)
    for order in orders:
        order[home] = labels[np.lexsort((generator.random(len(labels)), group))]
    centres, spreads, extremes = [], [], []
    for c, says in enumerate(each):
        chosen = orders == c
        means = chosen @ says / chosen.sum(1, keepdims=True)  # [shuffle, head]
        centres.append(means.mean(0))
        spreads.append(means.std(0) + 1e-12)
        extremes.append((np.abs(means - centres[-1]) / spreads[-1]).max(1))
    reach = np.quantile(np.max(extremes, axis=0), 0.99) * np.array(spreads)
    return np.maximum(weigh(centres + reach), weigh(centres - reach))


def before_elbow(importance: np.ndarray) -> np.ndarray:
    """Step 7: which heads lie before the elbow, the point of the falling curve farthest below its chord."""
    order = np.argsort(-importance, kind="stable")
    curve = importance[order]
    chord = np.linspace(curve[0], curve[-1], len(curve))
    chosen = np.zeros(len(curve), dtype=bool)
    chosen[order[: int(np.argmax(chord - curve))]] = True
    return chosen


# --- as labelled arrays


@dataclass(frozen=True)
class Readout:
    """What a kind of probe says of the test examples."""

    predicted: list[np.ndarray]  # their classes, by the labels and by each shuffle of them
    says: list[np.ndarray]  # for every class, what each example says of each head [example, head]
    weigh: Weigh
    epochs: int = 0


def probe_map(
    data: Examples,
    labels: np.ndarray,
    functions: Sequence[str],
    *,
    kind: str = "published",
    write: Tensor | None = None,
    use: np.ndarray | None = None,
    training: Training = PUBLISHED,
    controls: int = 1,
    draws: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Importance(function, layer, head) and all that says how far to trust it. Layers are those that `data` has.

    write: for kind 'written', W_O · W_Oᵀ of each head [layer, head, d_head, d_head]. use: for kind 'used', what `used`
    says [test example, head].
    """
    n, truth, shape = len(functions), labels[data.test], data.features.shape[1:3]
    generator = np.random.default_rng([seed, 3])
    shuffles = [_shuffled(labels, (data.train, data.validation, data.test), generator) for _ in range(controls)]
    labellings = [labels, *shuffles]
    alone = per_head(data, labels, n, shuffles)
    if kind == "published":
        readout = _published(data, labellings, n, training, seed, progress)
    elif kind == "per-head":
        says = [(alone[0][1] == c) - 1 / n for c in range(n)]
        readout = Readout(_best_heads(data, labellings, alone), says, _above_zero)
    elif kind == "used":
        assert use is not None
        readout = Readout(_best_heads(data, labellings, alone), [use] * n, _above_zero)
    else:
        assert kind == "written"
        assert write is not None
        readout = Readout(_best_heads(data, labellings, alone), [written(data, labels, n, write)] * n, np.abs)
    maps = _maps(readout, truth, data.groups_of(data.test), draws, generator)
    maps["head_recall"] = np.stack([(alone[0][1][truth == c] == c).mean(0) for c in range(n)])
    accuracy = [float((p == lab[data.test]).mean()) for p, lab in zip(readout.predicted, labellings, strict=True)]
    control = float(np.mean(accuracy[1:])) if controls else np.nan
    confusion = np.array([[np.mean(readout.predicted[0][truth == a] == b) for b in range(n)] for a in range(n)])
    dims = ("function", "layer", "head")
    return xr.Dataset(
        {
            **{name: (dims, values.reshape(n, *shape)) for name, values in maps.items()},
            "head_accuracy": (dims[1:], (alone[0][1] == truth[:, None]).mean(0).reshape(shape)),
            "accuracy": accuracy[0],
            "accuracy_per_function": ("function", confusion.diagonal().copy()),
            "confusion": (("function", "predicted"), confusion),
            "control_accuracy": control,
            "selectivity": accuracy[0] - control,
            "majority_accuracy": majority(labels, data.train, data.test),
            "epochs_trained": readout.epochs,
        },
        coords={"function": list(functions), "predicted": list(functions)},
    )


def _published(
    data: Examples, labellings: Sequence[np.ndarray], n: int, training: Training, seed: int, progress: Progress
) -> Readout:
    """The published probe, and as many trained on shuffled labels for as long."""
    labels, *shuffles = labellings
    fitted = fit_probe(data, labels, n, training, seed=seed, label="probe", progress=progress)
    epochs = max(1, fitted.epochs)
    predicted = [predict(fitted.probe, data)]
    for i, shuffled in enumerate(shuffles):
        name = "control: shuffled labels" + f" {i + 1}" * (len(shuffles) > 1)
        control = fit_probe(data, shuffled, n, training, seed=seed, epochs=epochs, label=name, progress=progress)
        predicted.append(predict(control.probe, data))
    return Readout(predicted, [attributions(fitted.probe, data, data.test, c) for c in range(n)], np.abs, epochs)


def _best_heads(
    data: Examples, labellings: Sequence[np.ndarray], alone: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[np.ndarray]:
    """What the head predicts that is best on validation examples, for each labelling."""
    return [
        test[:, (validation == labels[data.validation][:, None]).mean(0).argmax()]
        for (validation, test), labels in zip(alone, labellings, strict=True)
    ]


def _maps(
    readout: Readout, truth: np.ndarray, groups: np.ndarray, draws: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Maps [class, head] with intervals and chance levels, from what test examples say. truth: their classes."""
    says, weigh, n = readout.says, readout.weigh, len(readout.says)
    own = np.stack([says[c][truth == c].mean(0) for c in range(n)])
    weight = weigh(own)
    importance, total = normalised(weight), weight.sum(1, keepdims=True)
    total = np.where(total > 0, total, 1)
    drawn = [interval(says[c][truth == c], groups[truth == c], weigh, draws, generator) for c in range(n)]
    low, high = np.stack(drawn, axis=1) / total
    level = chance_level(says, truth, groups, weigh, draws, generator) / total
    elbow = np.stack([before_elbow(row) for row in importance])
    return {
        "importance": importance,
        "signed": own,
        "signed_others": np.stack([says[c][truth != c].mean(0) for c in range(n)]),
        "low": low,
        "high": high,
        "control_importance": level,
        "clears_control": low > level,
        "before_elbow": elbow,
        "selected": elbow & (low > level),
    }


def _shuffled(labels: np.ndarray, splits: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """The same labels in another order within each split."""
    shuffled = labels.copy()
    for split in splits:
        shuffled[split] = generator.permutation(labels[split])
    return shuffled


def _above_zero(score: np.ndarray) -> np.ndarray:
    return np.maximum(score, 0)


@torch.no_grad()
def directions(data: Examples, labels: np.ndarray, classes: int) -> Tensor:
    """σ · d [class, layer, head, d_head]: d the unit vector from the mean of the other classes to the class's own, in
    training examples, and σ their standard deviation along it."""
    layers, heads, d = data.features.shape[1:]
    hot = np.eye(classes, dtype=np.float32)[labels]
    sums = torch.zeros(classes, layers, heads, d, device=data.device)
    for batch, z in data.batches(data.train, CHUNK):
        sums += torch.einsum("bc,blhd->clhd", torch.tensor(hot[batch], device=data.device), z)
    counts = torch.from_numpy(hot[data.train].sum(0)).to(data.device)[:, None, None, None]
    total = sums.sum(0)
    unit = sums / counts - (total - sums) / (len(data.train) - counts)
    unit = torch.nn.functional.normalize(unit, dim=-1)
    first, second = torch.zeros(2, classes, layers, heads, device=data.device)
    for _, z in data.batches(data.train, CHUNK):
        along = torch.einsum("blhd,clhd->bclh", z - total / len(data.train), unit)
        first, second = first + along.sum(0), second + along.square().sum(0)
    variance = second / len(data.train) - (first / len(data.train)).square()
    return (unit * variance.clamp(min=0).sqrt()[..., None]).cpu()
