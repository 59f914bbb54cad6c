"""The environment of all tests, and the plugins that they share."""

import os

import torch
import transformers

from headatlas import terminal

pytest_plugins = [
    "tests.plugins.endpoint",
    "tests.plugins.families_table",
    "tests.plugins.models",
    "tests.plugins.scheduling",
    "tests.plugins.small_figures",
]

torch.set_num_threads(int(os.environ.get("TEST_THREADS", 1)))  # the suite runs in two processes on two cores
os.environ["OMP_NUM_THREADS"] = os.environ.get("TEST_THREADS", "1")  # and so do those that tests start
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may wait for a network
transformers.utils.logging.disable_progress_bar()
terminal.FIRST_LINE_SECONDS = 1e6  # how slow the machine is must not show in what commands print
