"""Which of pytest-xdist's workers runs which file, and in which order."""

import pytest
from xdist.scheduler import LoadScopeScheduling

# Files that take long, a line for each worker to do alone. They begin first, so that no worker has one left at the end.
TOGETHER = [
    ["tests/test_default_model.py", "tests/test_docs.py", "tests/test_examples.py"],  # they load the default model once
    ["tests/runs/test_engines.py", "tests/test_plug_in.py", "tests/engines/test_pool.py"],  # they start and kill others
    ["tests/bench/test_benchmark.py"],
    ["tests/figures/test_drawn.py"],
    ["tests/report/test_page.py"],
    ["tests/test_contract.py"],
    ["tests/test_atlas.py"],
    ["tests/models/test_families.py"],
    ["tests/bench/test_planted.py"],
    ["tests/test_sentencepiece.py"],
    ["tests/test_probe_public.py"],
    ["tests/test_typed.py"],
]
LONG = {file: number for number, files in enumerate(TOGETHER) for file in files}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.get(item.nodeid.partition("::")[0], len(LONG)))


class _ByFile(LoadScopeScheduling):
    """A file's tests go to one worker, so what they share is made once, and so do those of `TOGETHER`.

    Marks for groups are not used: with pytest 9.2, pytest-xdist 3.8 does not see them (its issue 1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return str(LONG.get(file, file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # it would begin with files of many tests, which are quick ones
    return _ByFile(config, log)
