"""Classify functions by heads' features, and make a map with intervals. No model is needed here.

Steps are numbered as in the paper (Ma et al. 2025, arXiv 2512.10978); steps 1 to 3 are in `compute`.

4. A head's feature is the mean of its z over an answer's tokens, concatenated with the mean of that over the heads of
   its layer: size 2D.
5. One Linear(2D → 64) shared by all heads, concatenated to 64 N; Linear → 512, ReLU, Dropout 0.3, Linear → classes.
6. Importance of a head for class c, over held-out examples of c: the mean of (∂ logit_c / ∂ projection) · projection
   over the 64 dimensions and over the examples, signed. The map is its absolute value, summing to 1 over heads.
7. The heads of c are those before the elbow of the sorted curve of importance.

Other kinds: 'per-head', a linear classifier for each head, whose importance is its recall above chance; and two
without a classifier: 'written', how much more a head writes in examples of c than in those of other classes, and
'used', how much of its output the answer depends on (`compute`).

Not in the paper: the weights with the lowest validation loss are used; importance and accuracy are measured on test
questions, with bootstrap intervals. The published probe is fitted from several seeds: scores are means over these
refits, and intervals include them. Labels are shuffled in two ways: other probes are trained on shuffled labels, for
their accuracy; and the labels of the test questions are shuffled, for the importance that heads reach by chance. A head
is *selected* only if its interval is above that.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from headatlas.errors import CannotDo
from headatlas.progress import Progress, silent
from headatlas.tasks.questions import Question, in_words

PROJECTION_SIZE = 64  # dimensions of a head's projection
HIDDEN_SIZE = 512
BATCH = 32  # examples per update (published: 1)
EVALUATION_BATCH = 256  # examples
SHRINKAGES = (1e-3, 1e-2, 1e-1, 1.0)  # of the covariance; the best on validation examples is used


@dataclass(frozen=True)
class Examples:
    """Features of examples, and their splits.

    Args:
        features: [example, layer, head, d_head], in memory or on disk.
        train: indices of training examples.
        validation: indices of validation examples.
        test: indices of test examples.
        device: where features are used.
        groups: the group of each example [example]. Examples of one group depend on each other, like the steps of a
            main question. None if all are independent.
    """

    features: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    device: torch.device
    groups: np.ndarray | None = None

    def batches(self, indices: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield the indices and features of one batch after the other; other features may stay on disk."""
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            # copied, because the alignment of NumPy's memory differs between runs, and with it a product's last bit
            yield batch, torch.tensor(self.features[batch], dtype=torch.float32, device=self.device)

    def groups_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the group of each of these examples."""
        return np.arange(len(indices)) if self.groups is None else self.groups[indices]


# --- the published probe


class Probe(nn.Module):
    """The published probe (step 5) of mean z [example, layer, head, d_head], which adds the layer's mean over heads."""

    def __init__(self, layers: int, heads: int, d_head: int, classes: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * d_head, PROJECTION_SIZE)
        self.hidden = nn.Linear(PROJECTION_SIZE * layers * heads, HIDDEN_SIZE)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(HIDDEN_SIZE, classes)

    def projections(self, z: Tensor) -> Tensor:
        """Return Linear([z, mean of z over heads]): [example, layer, head, dimension]."""
        # split, so that the layer's half is computed once per layer
        head_weight, layer_weight = self.project.weight.split(z.shape[-1], dim=1)
        return linear(z, head_weight) + linear(z.mean(2, keepdim=True), layer_weight, self.project.bias)

    def read(self, projections: Tensor) -> Tensor:
        """Return logits [example, class]."""
        return self.out(self.drop(torch.relu(self.hidden(projections.flatten(1)))))

    def forward(self, z: Tensor) -> Tensor:
        return self.read(self.projections(z))


@dataclass(frozen=True)
class FittedProbe:
    """A trained probe, the epoch of its weights, and the validation loss after each epoch."""

    probe: Probe
    epochs: int
    validation_loss: list[float]


def fit_probe(
    data: Examples,
    labels: np.ndarray,
    classes: int,
    *,
    epochs: int,
    lr: float,
    patience: int,
    batch: int = BATCH,
    stop_early: bool = True,
    seed: int = 0,
    label: str = "probe",
    progress: Progress = silent,
) -> FittedProbe:
    """Train on the training examples; keep the weights of the epoch with the lowest validation loss.

    Args:
        data: features and splits.
        labels: the class of each example.
        classes: number of classes.
        epochs: maximum number of epochs.
        lr: learning rate of AdamW.
        patience: training ends after this number of epochs without a lower validation loss.
        batch: examples per update.
        stop_early: if False, train for all epochs and keep the last weights, as for a control.
        seed: seed of the weights and of the order of examples.
        label: name in progress and errors.
        progress: reports the epochs.
    """
    layers, heads, d_head = data.features.shape[1:]
    target = torch.from_numpy(labels)
    generator = np.random.default_rng([seed, 2])
    with torch.random.fork_rng(devices=[data.device] if data.device.type == "cuda" else []):
        torch.manual_seed(seed)
        probe = Probe(layers, heads, d_head, classes).to(data.device)
        optimiser = torch.optim.AdamW(probe.parameters(), lr=lr, fused=True)
        best_epoch = 0
        losses = [np.inf]
        best_weights = copy.deepcopy(probe.state_dict())
        for epoch in progress(range(1, epochs + 1), label):
            if stop_early and epoch - best_epoch > patience:
                # not `break`, so that the progress bar reaches its end
                continue
            probe.train()
            for indices, z in data.batches(generator.permutation(data.train), batch):
                optimiser.zero_grad()
                loss = cross_entropy(probe(z), target[indices].to(data.device))
                loss.backward()
                optimiser.step()
            losses.append(_validation_loss(probe, data, target))
            if not np.isfinite(losses[-1]):
                raise CannotDo(f"{label}: the validation loss is {losses[-1]} after epoch {epoch}")
            if not stop_early or losses[-1] < losses[best_epoch]:
                best_epoch = epoch
                best_weights = {name: weight.clone() for name, weight in probe.state_dict().items()}
    probe.load_state_dict(best_weights)
    return FittedProbe(probe.eval(), best_epoch, losses[1:])


@torch.no_grad()
def _validation_loss(probe: Probe, data: Examples, target: Tensor) -> float:
    probe.eval()
    losses = [
        cross_entropy(probe(z), target[batch].to(data.device), reduction="sum").item()
        for batch, z in data.batches(data.validation, EVALUATION_BATCH)
    ]
    return sum(losses) / len(data.validation)


@torch.no_grad()
def predict(probe: Probe, data: Examples) -> np.ndarray:
    """Return the predicted class of every test example."""
    return np.concatenate([probe(z).argmax(1).cpu().numpy() for _, z in data.batches(data.test, EVALUATION_BATCH)])


def attributions(probe: Probe, data: Examples, examples: np.ndarray, c: int) -> np.ndarray:
    """Return each example's importance of all heads for class c (step 6): [example, head]."""
    scores = []
    for _, z in data.batches(examples, EVALUATION_BATCH):
        projections = probe.projections(z).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(probe.read(projections)[:, c].sum(), projections)
        scores.append((gradient * projections).detach().mean(-1).flatten(1).double().cpu().numpy())
    return np.concatenate(scores)


# --- other kinds


@torch.no_grad()
def per_head(
    data: Examples, labels: np.ndarray, classes: int, shuffles: Sequence[np.ndarray] = ()
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Fit a linear discriminant to every head's mean z in closed form, for all heads and labellings at once.

    The covariance within classes is shrunk towards a multiple of the identity, by the factor with the best accuracy on
    validation examples; all classes have the same weight.

    Returns:
        For the labels and for every shuffle of them, the predicted classes of validation and of test examples, both
        [example, head].
    """
    layers, heads, d = data.features.shape[1:]
    n = layers * heads
    labellings = [labels, *shuffles]
    hot = [np.eye(classes, dtype=np.float32)[labelling] for labelling in labellings]
    second = torch.zeros(n, d, d, device=data.device)
    sums = torch.zeros(len(labellings), n, classes, d, device=data.device)
    first_batch = next(data.batches(data.train[:EVALUATION_BATCH], EVALUATION_BATCH))[1]
    # an approximate mean is subtracted, because the covariance is a difference of sums of squares
    shift = first_batch.flatten(1, 2).mean(0)
    for batch, z in data.batches(data.train, EVALUATION_BATCH):
        x = (z.flatten(1, 2) - shift).transpose(0, 1)  # [head, example, d]
        second += x.transpose(1, 2) @ x
        for k in range(len(labellings)):
            sums[k] += torch.tensor(hot[k][batch], device=data.device).T @ x
    counts = [torch.from_numpy(h[data.train].sum(0)).to(data.device).clamp(min=1) for h in hot]

    def discriminant(k: int, shrinkage: float) -> tuple[Tensor, Tensor]:
        means = sums[k] / counts[k][:, None]
        within = (second - means.transpose(1, 2) @ (means * counts[k][:, None])) / len(data.train)
        scale = within.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-12)
        within = within + (shrinkage * scale)[:, None, None] * torch.eye(d, device=data.device)
        weight = torch.linalg.solve(within, means.transpose(1, 2))  # [head, d, class]
        return weight, -0.5 * (means * weight.transpose(1, 2)).sum(-1)

    def predictions(weight: Tensor, bias: Tensor, examples: np.ndarray) -> np.ndarray:
        predicted = []
        for _, z in data.batches(examples, EVALUATION_BATCH):
            x = (z.flatten(1, 2) - shift).transpose(0, 1)
            predicted.append((x @ weight + bias[:, None]).argmax(-1).T.to(torch.int16).cpu().numpy())
        return np.concatenate(predicted)

    truth = labels[data.validation][:, None]
    accuracies = [(predictions(*discriminant(0, s), data.validation) == truth).mean() for s in SHRINKAGES]
    best = SHRINKAGES[int(np.argmax(accuracies))]
    fitted = [discriminant(k, best) for k in range(len(labellings))]
    return [(predictions(*f, data.validation), predictions(*f, data.test)) for f in fitted]


# --- without the model: words


def bag_of_words(texts: Sequence[str], labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Return the test accuracy of a linear classifier on words and pairs of words."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    classifier = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
    classifier.fit([texts[i] for i in train], labels[train])
    return float((classifier.predict([texts[i] for i in test]) == labels[test]).mean())


def sentence_about(main: str, step: str) -> str:
    """Return the sentence of a main question that shares most words with a step."""
    sentences = re.split(r"(?<=[.?!])\s+", main)
    words = set(re.findall(r"\w{3,}", step.lower()))
    return max(sentences, key=lambda s: len(words & set(re.findall(r"\w{3,}", s.lower()))))


def wording(questions: Sequence[Question], answers: Sequence[str], labels: np.ndarray, data: Examples) -> xr.Dataset:
    """Return the accuracy of classifiers that see only the words of questions, prompts or answers."""
    texts = {
        "question": [q.text for q in questions],
        "prompt": [in_words(q) for q in questions],
        "answer": list(answers),
        "question and answer": [f"{q.text} {a}" for q, a in zip(questions, answers, strict=True)],
        "sentence asked about": [f"{sentence_about(q.main, q.text)} {q.text}" for q in questions],
    }
    # with vectors this small, several threads take five times as long on two cores, and longer on more
    with threadpool_limits(1):
        accuracies = [bag_of_words(text, labels, data.train, data.test) for text in texts.values()]
    return xr.Dataset(
        {"bag_of_words_accuracy": accuracies[0], "bag_of_words": ("wording", accuracies)},
        coords={"wording": list(texts)},
    )


def majority(labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Return the test accuracy of always predicting the commonest class of the training examples."""
    commonest = Counter(labels[train].tolist()).most_common(1)[0][0]
    return float((labels[test] == commonest).mean())


# --- from scores of each example to a map with intervals

Weigh = Callable[[np.ndarray], np.ndarray]
"""Turns mean scores into weights of heads: the absolute value for attributions, the part above 0 for classifiers."""


def normalised(weight: np.ndarray) -> np.ndarray:
    """Scale weights to sum to 1 over the last axis; if all are 0, they become equal."""
    total = weight.sum(-1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1), 1 / weight.shape[-1])


def interval(
    scores: np.ndarray, groups: np.ndarray, weigh: Weigh, *, draws: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the 95 % bootstrap interval [2, head] of the weight of each head's mean score [refit, example, head].

    Refits are drawn, and examples: whole groups of them, because they depend on each other.
    """
    names, group = np.unique(groups, return_inverse=True)
    counts = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)[:, group]
    means = np.stack([counts @ of_refit / counts.sum(1, keepdims=True) for of_refit in scores])  # [refit, draw, head]
    n = len(scores)
    weights = np.full((n, draws), 1 / n)  # [refit, draw]
    if n > 1:
        drawn = generator.multinomial(n, np.full(n, 1 / n), size=draws).T / n
        # a bootstrap of few refits is too narrow: its variance is (n − 1) / n of that of a mean of n refits
        weights += np.sqrt(n / (n - 1)) * (drawn - 1 / n)
    return np.quantile(weigh((weights[..., None] * means).sum(0)), [0.025, 0.975], axis=0)


def chance_level(
    scores: Sequence[np.ndarray],
    labels: np.ndarray,
    groups: np.ndarray,
    weigh: Weigh,
    *,
    draws: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return the weight that each head reaches for each class by chance, [class, head], from shuffled test labels.

    Labels are shuffled within groups, because the examples of a group have more in common than their labels; examples
    that are alone in their group are shuffled together. In 99 of 100 shuffles, no head exceeds its level for any class:
    all levels are the same number of standard deviations from the mean, taken from the most extreme head of a shuffle.

    Args:
        scores: scores of all test examples for each class, [example, head].
        labels: classes of the test examples.
        groups: groups of the test examples.
        weigh: turns mean scores into weights.
        draws: number of shuffles.
        generator: random generator.
    """
    names, group, size = np.unique(groups, return_inverse=True, return_counts=True)
    # examples that are alone in their group form one group
    group = np.where(size[group] == 1, len(names), group)
    by_group = np.argsort(group, kind="stable")
    orders = np.empty((draws, len(labels)), dtype=labels.dtype)
    for order in orders:
        order[by_group] = labels[np.lexsort((generator.random(len(labels)), group))]
    centres: list[np.ndarray] = []
    spreads: list[np.ndarray] = []
    extremes: list[np.ndarray] = []
    for c, class_scores in enumerate(scores):
        members = orders == c
        means = members @ class_scores / members.sum(1, keepdims=True)  # [shuffle, head]
        centres.append(means.mean(0))
        spreads.append(means.std(0) + 1e-12)
        extremes.append((np.abs(means - centres[-1]) / spreads[-1]).max(1))
    reach = np.quantile(np.max(extremes, axis=0), 0.99) * np.array(spreads)
    return np.maximum(weigh(centres + reach), weigh(centres - reach))


def before_elbow(importance: np.ndarray) -> np.ndarray:
    """Return which heads lie before the elbow (step 7): the point of the sorted curve farthest below its chord."""
    order = np.argsort(-importance, kind="stable")
    curve = importance[order]
    chord = np.linspace(curve[0], curve[-1], len(curve))
    selected = np.zeros(len(curve), dtype=bool)
    selected[order[: int(np.argmax(chord - curve))]] = True
    return selected


@dataclass(frozen=True)
class Readout:
    """The predictions and scores of a kind of probe for the test examples.

    Args:
        predicted: predicted classes of each refit.
        predicted_shuffled: predicted classes for each shuffle of the labels.
        scores: scores for each class [example, head], means over refits.
        own_scores: of each class, the scores of its own examples [refit, example, head].
        weigh: turns mean scores into weights.
        epochs: epochs of training, mean over refits.
    """

    predicted: list[np.ndarray]
    predicted_shuffled: list[np.ndarray]
    scores: list[np.ndarray]
    own_scores: list[np.ndarray]
    weigh: Weigh
    epochs: float = 0


def probe_map(
    data: Examples,
    labels: np.ndarray,
    functions: Sequence[str],
    *,
    kind: str = "published",
    scores: np.ndarray | None = None,
    training: Mapping[str, Any] | None = None,
    refits: int = 1,
    controls: int = 1,
    draws: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Return importance(function, layer, head), with intervals, chance levels and accuracies.

    Args:
        data: features and splits. The map has the layers of the features.
        labels: index in `functions` of each example's function.
        functions: names of functions.
        kind: 'published', 'per-head', 'written' or 'used'.
        scores: for 'written' and 'used', scores of the test examples [test example, head].
        training: for 'published', options of `fit_probe`.
        refits: for 'published', number of probes trained on the labels.
        controls: number of probes trained on shuffled labels.
        draws: number of bootstrap draws, and of shuffles of test labels.
        seed: seed of training, draws and shuffles.
        progress: reports training.
    """
    n = len(functions)
    truth = labels[data.test]
    shape = data.features.shape[1:3]
    generator = np.random.default_rng([seed, 3])
    splits = (data.train, data.validation, data.test)
    labellings = [labels, *(_shuffled(labels, splits, generator) for _ in range(controls))]
    by_head = per_head(data, labels, n, labellings[1:])
    head_predicted = by_head[0][1]
    if kind == "published":
        readout = _published(data, labellings, n, training or {}, refits, seed, progress=progress)
    else:
        if kind == "per-head":
            of_classes = [(head_predicted == c) - 1 / n for c in range(n)]
        else:
            assert scores is not None
            of_classes = [scores] * n
        own = [of_class[truth == c][None] for c, of_class in enumerate(of_classes)]
        best, *best_shuffled = _best_heads(data, labellings, by_head)
        weigh = np.abs if kind == "written" else _above_zero
        readout = Readout([best], best_shuffled, of_classes, own, weigh)
    refitted = np.stack([normalised(readout.weigh(own.mean(1))) for own in readout.own_scores], axis=1)
    maps = _maps(readout, truth, data.groups_of(data.test), draws, generator)
    maps["head_recall"] = np.stack([(head_predicted[truth == c] == c).mean(0) for c in range(n)])
    predicted = np.stack(readout.predicted)  # [refit, example]
    accuracy = float((predicted == truth).mean())
    shuffled = zip(readout.predicted_shuffled, labellings[1:], strict=True)
    right = [(of_shuffle == labelling[data.test]).mean() for of_shuffle, labelling in shuffled]
    control = float(np.mean(right)) if right else np.nan
    confusion = np.array([[np.mean(predicted[:, truth == a] == b) for b in range(n)] for a in range(n)])
    dims = ("function", "layer", "head")
    return xr.Dataset(
        {
            **{name: (dims, values.reshape(n, *shape)) for name, values in maps.items()},
            "importance_refit": (("refit", *dims), refitted.reshape(-1, n, *shape)),
            "head_accuracy": (dims[1:], (head_predicted == truth[:, None]).mean(0).reshape(shape)),
            "accuracy": accuracy,
            "accuracy_per_function": ("function", confusion.diagonal().copy()),
            "confusion": (("function", "predicted"), confusion),
            "control_accuracy": control,
            "selectivity": accuracy - control,
            "majority_accuracy": majority(labels, data.train, data.test),
            "epochs_trained": readout.epochs,
        },
        coords={"function": list(functions), "predicted": list(functions)},
    )


def _published(
    data: Examples,
    labellings: Sequence[np.ndarray],
    n: int,
    training: Mapping[str, Any],
    refits: int,
    seed: int,
    *,
    progress: Progress,
) -> Readout:
    """Train the published probe from several seeds, and a probe on each shuffle of the labels for as many epochs."""
    labels, *shuffles = labellings
    truth = labels[data.test]
    predicted = []
    epochs = []
    scores = [np.zeros(())] * n
    own: list[list[np.ndarray]] = [[] for _ in range(n)]
    for refit in range(refits):
        label = "probe" + f", fit {refit + 1}" * (refits > 1)
        # seeds that no other fit has
        fit_seed = seed if not refit else int(np.random.default_rng([seed, 4, refit]).integers(2**31))
        fitted = fit_probe(data, labels, n, **training, seed=fit_seed, label=label, progress=progress)
        predicted.append(predict(fitted.probe, data))
        epochs.append(max(1, fitted.epochs))
        for c in range(n):
            of_refit = attributions(fitted.probe, data, data.test, c)
            scores[c] = scores[c] + of_refit / refits
            own[c].append(of_refit[truth == c])
    predicted_shuffled = []
    for i, shuffled in enumerate(shuffles):
        label = "control: shuffled labels" + f" {i + 1}" * (len(shuffles) > 1)
        control_training = {**training, "epochs": round(np.mean(epochs)), "stop_early": False}
        control = fit_probe(data, shuffled, n, **control_training, seed=seed, label=label, progress=progress)
        predicted_shuffled.append(predict(control.probe, data))
    return Readout(predicted, predicted_shuffled, scores, list(map(np.stack, own)), np.abs, float(np.mean(epochs)))


def _best_heads(
    data: Examples, labellings: Sequence[np.ndarray], by_head: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[np.ndarray]:
    """Return for each labelling the predictions of the head that is best on validation examples."""
    return [
        test[:, (validation == labels[data.validation][:, None]).mean(0).argmax()]
        for (validation, test), labels in zip(by_head, labellings, strict=True)
    ]


def _maps(
    readout: Readout, truth: np.ndarray, groups: np.ndarray, draws: int, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return maps [class, head] with intervals and chance levels. truth: classes of the test examples."""
    scores = readout.scores
    weigh = readout.weigh
    members = [truth == c for c in range(len(scores))]
    signed = np.stack([s[m].mean(0) for s, m in zip(scores, members, strict=True)])
    weight = weigh(signed)
    importance = normalised(weight)
    total = weight.sum(1, keepdims=True)
    total = np.where(total > 0, total, 1)
    intervals = [
        interval(own, groups[m], weigh, draws=draws, generator=generator)
        for own, m in zip(readout.own_scores, members, strict=True)
    ]
    low, high = np.stack(intervals, axis=1) / total
    level = chance_level(scores, truth, groups, weigh, draws=draws, generator=generator) / total
    elbow = np.stack([before_elbow(row) for row in importance])
    return {
        "importance": importance,
        "signed": signed,
        "signed_others": np.stack([s[~m].mean(0) for s, m in zip(scores, members, strict=True)]),
        "low": low,
        "high": high,
        "control_importance": level,
        "clears_control": low > level,
        "before_elbow": elbow,
        "selected": elbow & (low > level),
    }


def _shuffled(labels: np.ndarray, splits: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """Shuffle the labels within each split."""
    shuffled = labels.copy()
    for split in splits:
        shuffled[split] = generator.permutation(labels[split])
    return shuffled


def _above_zero(score: np.ndarray) -> np.ndarray:
    return np.maximum(score, 0)
