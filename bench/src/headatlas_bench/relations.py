"""Planted relations: a random model in which chosen heads write chosen relations, by least squares, under noise.

For pairs (s, t) of a relation, W_V · W_O of its head is the matrix of least norm that turns x(s) into logits that are
one-hot at t. x is the layer's normed input at s after an opening, as the model computes it. The final norm's scale is
applied before U. The matrix is cut to the head's rank; a suppressing head has its negative. Noise is a random matrix so
many times as large (Frobenius norm). All other heads stay random, and as large.
"""

from dataclasses import dataclass, replace

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headatlas.models.lm import LM
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.words import find_opening
from headatlas_bench.circuits import Heads

NAMES = (
    "country_to_capital",
    "verb_to_past_tense",
    "adj_to_comparative",
    "word_to_antonym",
    "english_to_spanish",
    "object_superclass",
)
NOISE = (0.0, 2.0, 4.0, 8.0)
PAIRS = 48  # of each relation
LAYERS, HEADS, D_HEAD, D_MODEL = 4, 8, 64, 256
SCALES = 0.5  # spread of the logarithm of norms' scales
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class PlantedRelations:
    lm: LM
    relations: list[Relation]
    writers: dict[str, Heads]
    suppressors: dict[str, Heads]


def plant_relations(noise: float = 0.0, seed: int = 0) -> PlantedRelations:
    """Every relation gets a writing head and a suppressing head, one anywhere, one above the first layer."""
    every = load_relations()
    relations = [_first_pairs(r) for r in every if r.name in NAMES]
    words = sorted({w for r in every for pair in r.pairs for w in pair if " " not in w})
    generator = torch.Generator().manual_seed(seed)
    lm = LM(_random_model(1 + len(words), generator), _tokenizer(words), f"relations, noise {noise:g}, seed {seed}")
    order = [divmod(int(i), HEADS) for i in torch.randperm(LAYERS * HEADS, generator=generator)]
    ids = {word: 1 + i for i, word in enumerate(words)}
    writers, suppressors = ({r.name: [order.pop()] for r in relations} for _ in range(2))
    heads = [
        (place, r, sign)
        for by, sign in ((writers, 1.0), (suppressors, -1.0))
        for r in relations
        for place in by[r.name]
    ]
    with torch.no_grad():
        scaled = lm.weights.through_norms(0, torch.eye(D_MODEL)) @ lm.weights.unembedding()
        reading = torch.linalg.pinv(scaled)
        heads.sort(key=lambda h: h[0])  # from below, because a layer reads what those below it write
        for (layer, head), relation, sign in heads:
            _write(lm, layer, head, sign * _fit(lm, layer, relation, ids) @ reading, noise, generator)
    return PlantedRelations(lm, relations, writers, suppressors)


def _fit(lm: LM, layer: int, relation: Relation, ids: dict[str, int]) -> Tensor:
    """[d_model, word] = X⁺ · (one-hot targets)."""
    sources, targets = (torch.tensor([ids[pair[side]] for pair in relation.pairs]) for side in (0, 1))
    texts = torch.tensor([*find_opening(lm.tokenizer), 0]).repeat(len(sources), 1)
    texts[:, -1] = sources
    x: dict[int, Tensor] = {}
    lm.weights.run(texts, x.__setitem__)
    wanted = torch.nn.functional.one_hot(targets, len(ids) + 1).to(x[layer])
    return torch.linalg.pinv(x[layer]) @ wanted


def _write(lm: LM, layer: int, head: int, matrix: Tensor, noise: float, generator: torch.Generator) -> None:
    random = torch.randn(matrix.shape, generator=generator)
    u, s, v = torch.linalg.svd(matrix / matrix.norm() + noise * random / random.norm())
    root = s[:D_HEAD].sqrt()
    attention, rows = lm.model.model.layers[layer].self_attn, slice(head * D_HEAD, (head + 1) * D_HEAD)
    size = attention.v_proj.weight[rows].norm(), attention.o_proj.weight[:, rows].norm()
    for weight, part, norm in (
        (attention.v_proj.weight[rows], (u[:, :D_HEAD] * root).T, size[0]),
        (attention.o_proj.weight[:, rows], v[:D_HEAD].T * root, size[1]),
    ):
        weight.copy_(part * (norm / part.norm()))


def _random_model(vocabulary: int, generator: torch.Generator) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=D_MODEL,
        intermediate_size=2 * D_MODEL,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=D_HEAD,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        weight.copy_((noise * SCALES).exp() if "norm" in name else noise * weight.shape[-1] ** -0.5)
    return model


def _tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    one_a_word = Tokenizer(WordLevel({w: i for i, w in enumerate([UNKNOWN, *words])}, unk_token=UNKNOWN))
    one_a_word.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=one_a_word, unk_token=UNKNOWN, pad_token=UNKNOWN)


def _first_pairs(relation: Relation) -> Relation:
    """The first pairs of single words, each source once: a head can write one target for it."""
    once: dict[str, str] = {}
    for source, target in relation.pairs:
        if " " not in source + target:
            once.setdefault(source, target)
    return replace(relation, pairs=tuple(list(once.items())[:PAIRS]), multi_token="")
