"""salient: list the tokens that every head amplifies most, and its outputs for them, from its parameters alone.

1. x is every token's input to a head: E for layer 0, block 0's MLP of E for later layers, as in the MAPS paper.
2. Amplification of a token: ‖x · W_V · W_O‖ / ‖x‖.
3. For the most amplified tokens, list the strongest outputs of x · W_V · W_O · U, and the most suppressed ones.

These are lists, not a map: they have no score that could be compared between heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.errors import check_count
from headatlas.methods.method import TokenLists, Variable, method
from headatlas.progress import Progress, silent

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.models.loading import Parameters

MAX_LISTED = 10_000  # tokens per head; also outputs per token


@method(
    title="Salient tokens",
    lists=TokenLists(tokens="token", value="amplification", written="strongest", demoted="suppressed"),
    variables={
        "token": Variable("token", "", "Tokens that the head amplifies most, the most amplified first."),
        "amplification": Variable(
            "amplification", "", "Factor by which the head changes the length of the token's vector; above 1 it grows."
        ),
        "strongest": Variable("strongest", "", "Tokens that the head promotes most for the amplified token."),
        "suppressed": Variable("suppressed", "", "Tokens that the head suppresses most for the amplified token."),
    },
    presets={"quick": {}, "full": {}},
    finds="which tokens every head amplifies most, and which tokens it promotes and suppresses for them",
    misses="whether these tokens reach the head in real texts, or what depends on it",
    cites=(
        "Inferring Functionality of Attention Heads from their Parameters (MAPS), Elhelo & Geva, ACL 2025,"
        " arXiv 2412.11965",
    ),
    seconds=5,
    needs_model=False,
)
def salient(
    model: Parameters,
    *,
    top: Annotated[int, "number of amplified tokens to list for each head"] = 8,
    outputs: Annotated[int, "number of strongest outputs, and of suppressed ones, to list for each token"] = 4,
    progress: Progress = silent,
) -> xr.Dataset:
    """List the tokens that every head amplifies most, and its outputs for them, from its parameters alone.

    Returns:
        token(layer, head, rank) with their amplification(layer, head, rank), and the strongest and most suppressed
        outputs for each (layer, head, rank, output).

    Example:
        >>> ha.salient("smollm2", top=3).token.sel(layer=2, head=4)
    """
    check_count("top", top, 1, MAX_LISTED)
    check_count("outputs", outputs, 1, MAX_LISTED)
    from headatlas.methods.salient.compute import salient_operations

    return salient_operations(
        model.weights, model.tokenizer, tokens=top, outputs=outputs, device=model.device, progress=progress
    )
