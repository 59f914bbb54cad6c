"""duo-attention: a folder with full_attention_heads.tsv, layers × KV heads, and config.json; kvpress reads it too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadArgument, BadFile, CannotDo, brief
from headatlas.exchange.format import Format, Source

if TYPE_CHECKING:
    from headatlas.exchange.checked_tables import ImportOptions, Tables
    from headatlas.exchange.export_request import ExportRequest, Files

HEADS_FILE = "full_attention_heads.tsv"
CONFIG_FILE = "config.json"
# Token counts that DuoAttention itself uses for streaming heads.
DEFAULT_SINK = 128
DEFAULT_RECENT = 256


def recognises(source: Source) -> bool:
    return source.holds(HEADS_FILE)


def read(path: Path, options: ImportOptions) -> Tables:
    """Read how much each KV head needs the whole text (1), or only its first and last tokens (0)."""
    from headatlas.exchange.checked_tables import Tables, check_same_shape, parse_square, read_json, read_text
    from headatlas.exchange.head_rows import as_number

    folder = path if path.is_dir() else path.parent
    file = folder / HEADS_FILE
    settings = folder / CONFIG_FILE
    if not file.is_file():
        raise BadFile(f"{folder} lacks {HEADS_FILE}")
    lines = [line.split() for line in read_text(file).splitlines() if line.strip()]
    scores = parse_square([[as_number(cell) for cell in line] for line in lines], str(file))
    check_same_shape({"": scores}, file, options.layers, None)
    config = read_json(settings) if settings.is_file() else {}
    if not isinstance(config, dict):
        raise BadFile(f"{settings} holds {brief(config)}, expected an object")
    names = ("model_name", "sink_size", "recent_size")
    about = {name: config[name] for name in names if type(config.get(name)) in (str, int)}
    return Tables({"full attention": scores}, per_kv_head=True, about=about)


def write(request: ExportRequest) -> Files:
    """Write how much each KV head needs the whole text: the maximum over the heads of its group."""
    from headatlas.exchange.export_request import Files, json_bytes

    score, notes = request.scores_of_all_heads("duo-attention")
    layers, heads = score.shape
    groups = heads if request.per_group else request.kv_heads
    if groups is None:
        raise BadArgument("kv_heads is not known for these maps: give it")
    if heads % groups:
        raise BadArgument(f"kv_heads is {groups}, which does not divide the {heads} heads")
    score = score.reshape(layers, groups, heads // groups).max(-1)
    label = request.charts.chart.item()
    config: dict[str, Any] = {"model_name": request.model, "source": f"headatlas, {label}"}
    sizes = (("sink_size", request.sink, DEFAULT_SINK), ("recent_size", request.recent, DEFAULT_RECENT))
    for name, size, default in sizes:
        config[name] = default if size is None else size
        if size is None:
            notes.append(f"{name} is {default}, the default of DuoAttention: {label} has none")
    low = float(score.min())
    high = float(score.max())
    # Readers of this format expect scores from 0 to 1.
    if low < 0 or high > 1:
        if low == high:
            raise CannotDo(f"{label} is {low:g} for all KV heads: heads cannot be ranked by it")
        score = (score - low) / (high - low)
        config["scale"] = [low, high]
        notes.append(f"scores from {low:.4g} to {high:.4g} are rescaled to 0 to 1: choose heads by rank, not by 0.5")
    lines = "".join("\t".join(map(repr, row)) + "\n" for row in score.tolist())
    content = {HEADS_FILE: lines.encode(), CONFIG_FILE: json_bytes(config, indent=2)}
    return Files(content, f"{layers} layers × {groups} KV heads", notes)


FORMAT = Format(
    "duo-attention",
    read=read,
    recognises=recognises,
    result_name="duo-attention",
    write=write,
    export_options=("sink", "recent", "kv_heads", "fill"),
    one_map=True,
    is_folder=True,
)
