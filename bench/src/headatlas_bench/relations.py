"""Plant relations in a random model: selected heads write them, fitted by least squares, under noise.

For pairs (s, t) of a relation, W_V · W_O of its head is the least-norm matrix that turns x(s) into logits that are
one-hot at t. x is the layer's normed input at s after an opening, as the model computes it. The final norm's scale is
applied before U. The matrix is truncated to the head's rank; a suppressing head has its negative. Noise is a random
matrix whose Frobenius norm is the noise level times that of the fitted matrix. All other heads stay random, with
weights of the same size.
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

RELATION_NAMES = (
    "country_to_capital",
    "verb_to_past_tense",
    "adj_to_comparative",
    "word_to_antonym",
    "english_to_spanish",
    "object_superclass",
)
NOISE_LEVELS = (0.0, 2.0, 4.0, 8.0)
PAIRS_PER_RELATION = 48
LAYERS, HEADS, D_HEAD, D_MODEL = 4, 8, 64, 256
# Standard deviation of the logarithm of the norms' scales.
NORM_SCALE_SPREAD = 0.5
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class PlantedRelations:
    lm: LM
    relations: list[Relation]
    writers: dict[str, Heads]
    suppressors: dict[str, Heads]


def plant_relations(noise: float = 0.0, seed: int = 0) -> PlantedRelations:
    """Give every relation a writing head and a suppressing head, in layers drawn by seed."""
    all_relations = load_relations()
    relations = [_first_pairs(r) for r in all_relations if r.name in RELATION_NAMES]
    words = sorted({w for r in all_relations for pair in r.pairs for w in pair if " " not in w})
    generator = torch.Generator().manual_seed(seed)
    lm = LM(_random_model(1 + len(words), generator), _tokenizer(words), f"relations, noise {noise:g}, seed {seed}")
    order = [divmod(int(i), HEADS) for i in torch.randperm(LAYERS * HEADS, generator=generator)]
    ids = {word: 1 + i for i, word in enumerate(words)}
    writers, suppressors = ({r.name: [order.pop()] for r in relations} for _ in range(2))
    heads = [
        (head, r, sign)
        for heads_by_relation, sign in ((writers, 1.0), (suppressors, -1.0))
        for r in relations
        for head in heads_by_relation[r.name]
    ]
    with torch.no_grad():
        scaled = lm.weights.through_norms(0, torch.eye(D_MODEL)) @ lm.weights.unembedding()
        logits_to_stream = torch.linalg.pinv(scaled)
        # Lower layers first: a layer reads what those below it write.
        heads.sort(key=lambda h: h[0])
        for (layer, head), relation, sign in heads:
            _write_head(
                lm, layer, head, sign * _fit_matrix(lm, layer, relation, ids) @ logits_to_stream, noise, generator
            )
    return PlantedRelations(lm, relations, writers, suppressors)


def _fit_matrix(lm: LM, layer: int, relation: Relation, ids: dict[str, int]) -> Tensor:
    """Return X⁺ · (one-hot targets) [d_model, word]."""
    sources, targets = (torch.tensor([ids[pair[side]] for pair in relation.pairs]) for side in (0, 1))
    texts = torch.tensor([*find_opening(lm.tokenizer), 0]).repeat(len(sources), 1)
    texts[:, -1] = sources
    inputs: dict[int, Tensor] = {}
    lm.weights.run(texts, inputs.__setitem__)
    one_hot_targets = torch.nn.functional.one_hot(targets, len(ids) + 1).to(inputs[layer])
    return torch.linalg.pinv(inputs[layer]) @ one_hot_targets


def _write_head(lm: LM, layer: int, head: int, matrix: Tensor, noise: float, generator: torch.Generator) -> None:
    noise_matrix = torch.randn(matrix.shape, generator=generator)
    u, singular_values, v = torch.linalg.svd(matrix / matrix.norm() + noise * noise_matrix / noise_matrix.norm())
    root = singular_values[:D_HEAD].sqrt()
    attention = lm.model.model.layers[layer].self_attn
    rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
    norms = attention.v_proj.weight[rows].norm(), attention.o_proj.weight[:, rows].norm()
    for weight, part, norm in (
        (attention.v_proj.weight[rows], (u[:, :D_HEAD] * root).T, norms[0]),
        (attention.o_proj.weight[:, rows], v[:D_HEAD].T * root, norms[1]),
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
        weight.copy_((noise * NORM_SCALE_SPREAD).exp() if "norm" in name else noise * weight.shape[-1] ** -0.5)
    return model


def _tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    word_tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate([UNKNOWN, *words])}, unk_token=UNKNOWN))
    word_tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=word_tokenizer, unk_token=UNKNOWN, pad_token=UNKNOWN)


def _first_pairs(relation: Relation) -> Relation:
    """Keep the first pairs of single words, each source once: a head can write only one target for it."""
    target_by_source: dict[str, str] = {}
    for source, target in relation.pairs:
        if " " not in source + target:
            target_by_source.setdefault(source, target)
    return replace(relation, pairs=tuple(list(target_by_source.items())[:PAIRS_PER_RELATION]), multi_token="")
