"""Compute kvpress' scores of KV heads, to compare with maps in benchmarks/kv_cache.py.

    python benchmarks/kvpress_scores.py FILE.npy [--model smollm2] [--texts 10]

kvpress (docs/how-to/export.md shows how to install it with HeadAtlas) scores the heads of any model by how far back a
mean query attends among mean keys. It reads chapters of BookSum from the hub; here it gets pieces of the built-in text.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from common import make_parser
from kvpress.presses import duo_attention_press

import headatlas as ha
from headatlas.tasks.needles import load_sentences


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", texts=10)
    parser.add_argument("out", type=Path, help=".npy file for the scores [layer, kv_head]")
    options = parser.parse_args()
    sentences = load_sentences()
    size = len(sentences) // options.texts
    pieces = [" ".join(sentences[i * size : (i + 1) * size]) for i in range(options.texts)]
    chapters = SimpleNamespace(to_pandas=lambda: pd.DataFrame({"chapter": pieces}))
    duo_attention_press.load_dataset = lambda *_, **__: chapters
    duo_attention_press.AutoTokenizer = SimpleNamespace(from_pretrained=lambda _: lm.tokenizer)
    lm = ha.load(options.model, options.device)
    scores = duo_attention_press.duo_attention_on_the_fly(lm.model, num_samples=options.texts)
    np.save(options.out, scores)
    print(f"wrote {options.out}: {scores.shape[0]} layers × {scores.shape[1]} KV heads")


if __name__ == "__main__":
    main()
