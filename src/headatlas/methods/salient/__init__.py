"""`ha.salient`."""

from pathlib import Path

import xarray as xr

from headatlas.errors import check_count
from headatlas.results.files import check_folder
from headatlas.methods.salient.operations import salient_operations
from headatlas.models.cost import Cost
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.fingerprint import fingerprint_setup
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, open_weights
from headatlas.progress import Done, Progress, doing, silent
from headatlas.runs.job import Job, method, stamp

MOST_TOKENS = 10_000


@method
def salient(
    model: LM | str | Path = DEFAULT_MODEL,
    *,
    tokens: int = 8,
    outputs: int = 4,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Of every head, the tokens it amplifies most and what it makes of them, from its parameters alone.

    `token(layer, head, rank)` with their `amplification`, and the `strongest` and most `suppressed` outputs of each.
    tokens, outputs: how many. out: a folder for salient.nc.
    """
    check_folder(out)
    for name, value in (("tokens", tokens), ("outputs", outputs)):
        check_count(name, value, 1, MOST_TOKENS, "so many are kept of every head")
    with doing(progress, f"opening {model}"):
        weights, tokenizer, called = open_weights(model)
    where = model.device if isinstance(model, LM) else check_device(device)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        return salient_operations(weights, tokenizer, tokens=tokens, outputs=outputs, device=where, progress=progress)

    def cost() -> Cost:
        a, (width, known) = weights.anatomy, weights.unembedding().shape
        gains = 8.0 * known * a.n_heads * (width * a.n_kv_heads / a.n_heads + a.d_head) * a.d_head
        return Cost(operations=a.n_layers * (gains + 2.0 * a.n_heads * tokens * width * known))

    return Job(
        "salient",
        f"the {tokens} most amplified tokens of every head, from the parameters alone",
        stamp(weights, fingerprint_setup(weights.config, tokenizer), called, "", progress)
        | {"tokens": tokens, "outputs": outputs},
        work,
        cost=cost,
        out=None if out is None else Path(out),
        progress=progress,
    )
