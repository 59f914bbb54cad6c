"""salient: of every head, the tokens it amplifies most, and what it makes of them. From its parameters alone.

1. x is every token's input to a head: E for layer 0, block 0's MLP of E for later layers, as MAPS published it.
2. Amplification of a token: ‖x · W_V · W_O‖ / ‖x‖.
3. For the most amplified tokens, the strongest outputs of x · W_V · W_O · U, and the most suppressed ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.errors import check_count
from headatlas.methods.method import lazily, method
from headatlas.progress import Progress, silent

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.models.loading import Parameters

MOST = 10_000


@method(
    title="Salient tokens",
    presets={"quick": {}, "full": {}},
    tells="which tokens a head amplifies most, and what it turns them into",
    does_not_tell="whether they ever reach it, or what depends on it",
    cites=(
        "Inferring Functionality of Attention Heads from their Parameters (MAPS), Elhelo & Geva, ACL 2025,"
        " arXiv 2412.11965",
    ),
    cost=lazily("headatlas.methods.salient.operations:salient_cost"),
    seconds=5,
    needs_model=False,
)
def salient(
    model: Parameters,
    *,
    top: Annotated[int, "tokens of every head"] = 8,
    outputs: Annotated[int, "strongest, and most suppressed, outputs of each token"] = 4,
    progress: Progress = silent,
) -> xr.Dataset:
    """Of every head, the tokens it amplifies most and what it makes of them, from its parameters alone.

    Returns token(layer, head, rank) with their amplification(layer, head, rank), and the strongest and most suppressed
    outputs of each (layer, head, rank, output).

    Example:
        >>> ha.salient("smollm2", top=3).token.sel(layer=2, head=4)
    """
    for name, value in (("top", top), ("outputs", outputs)):
        check_count(name, value, 1, MOST, "so many are kept of every head")
    from headatlas.methods.salient.operations import salient_operations

    return salient_operations(
        model.weights, model.tokenizer, tokens=top, outputs=outputs, device=model.device, progress=progress
    )
