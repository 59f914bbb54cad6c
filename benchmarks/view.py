"""Time the answers of the live page over a real connection, compared with bare forward passes in the same run.

    python benchmarks/view.py [--model smollm2] [--device auto] [--tokens 64]
    python benchmarks/view.py --shape 8b        random weights of Llama-3.1-8B's shape, on a GPU

Prints medians after a warm-up. Only seconds of the same run can be compared.

first       everything that a new prompt shows: next tokens, attention and thumbnails, what a head writes, both maps
switch      next tokens without a head that was not removed before, compared with two forward passes
attention   a head's pattern after the prompt was run
"""

import http.client
import json
import statistics
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import torch
from common import llama_8b, make_parser, time_call
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import headatlas as ha
from headatlas.live.answers import Answer, Live
from headatlas.live.question import Question
from headatlas.live.server import Server

FIRST_QUESTIONS = ("next", "attention", "writes", "thumbnails", "direct", "slope")


def make_asker(server: Server, **values: Any) -> Callable[..., object]:
    """Make a function that asks questions on one connection, as a page does."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=600)
    headers = {"content-type": "application/json", "x-headatlas-token": server.guard.token}

    def ask(kind: str, **values_of_kind: Any) -> object:
        body = json.dumps({"kind": kind, "page": "p", "place": kind, **values, **values_of_kind})
        connection.request("POST", "/ask", body, headers)
        *_, last = connection.getresponse().read().splitlines()
        answer = json.loads(last)
        if "result" not in answer:
            raise SystemExit(f"{kind}: {answer}")
        return answer["result"]

    return ask


def number_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer for a model that has none, with one number per token."""
    words = {"<unk>": 0} | {str(i): i for i in range(1, 50_000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def random_prompt(lm: ha.LM, tokens: int, seed: int) -> str:
    """Make a random text of about `tokens` tokens."""
    generator = torch.Generator().manual_seed(seed)
    words = " ".join(lm.tokenizer.decode([i]) for i in torch.randint(1000, 40_000, (tokens,), generator=generator))
    return str(lm.tokenizer.decode(lm.encode(words)[0][:tokens]))


def time_prompt(lm: ha.LM, server: Server, prompt: str) -> dict[str, float]:
    """Return the seconds of each answer about a prompt that the server has not seen."""
    ask = make_asker(server, prompt=prompt)
    layer = lm.n_layers // 2
    times = {kind: time_call(partial(ask, kind, layer=layer)) for kind in FIRST_QUESTIONS}
    return times | {
        "first": sum(times.values()),
        "forward": time_call(partial(ask, "forward")),
        "switch": time_call(partial(ask, "next", heads=[[layer, 1, 0]])),
        "pattern": time_call(partial(ask, "attention", layer=layer + 1, head=2)),
    }


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", tokens=64, rounds=5)
    parser.add_argument("--shape", choices=["8b"])
    options = parser.parse_args()
    lm = ha.LM(llama_8b().model, number_tokenizer(), "8b") if options.shape else ha.load(options.model, options.device)
    live = Live(lm)

    @torch.no_grad()
    def forward(question: Question) -> Answer:
        """Run a bare pass in the model's thread, as all answers; a second thread would compete with it."""
        ids = torch.tensor(lm.encode(question.prompt), device=lm.device)
        yield {"result": bool(lm.model(ids, use_cache=False).logits.isfinite().all())}

    live.kinds["forward"] = forward
    server, rounds = Server(live, lambda: "", host="127.0.0.1", port=0), []

    def ask_all() -> None:
        try:
            rounds.extend(
                time_prompt(lm, server, random_prompt(lm, options.tokens, n)) for n in range(options.rounds + 1)
            )
        finally:
            server.stop()

    asking = threading.Thread(target=ask_all)
    asking.start()
    # In this thread, as `headatlas view` does.
    server.run()
    asking.join()
    # The first round warms up.
    median = {name: 1000 * statistics.median(r[name] for r in rounds[1:]) for name in rounds[0]}
    print(f"{lm}\n{options.tokens} tokens, medians of {options.rounds} prompts")
    print(
        f"first shown        {median['first']:9.1f} ms   " + ", ".join(f"{k} {median[k]:.1f}" for k in FIRST_QUESTIONS)
    )
    print(f"forward pass       {median['forward']:9.1f} ms")
    ratio = median["switch"] / (2 * median["forward"])
    print(f"switch             {median['switch']:9.1f} ms   {ratio:.2f} × two forward passes")
    print(f"attention pattern  {median['pattern']:9.1f} ms")


if __name__ == "__main__":
    main()
