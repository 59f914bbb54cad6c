"""Show the progress of a command that computes on the terminal."""

import webbrowser
from pathlib import Path
from typing import Any

import typer

from headatlas.cli.app import print_table
from headatlas.terminal import RunDisplay


class Display(RunDisplay):
    """Also shows the plan, and opens the page once it exists.

    Args:
        out: folder of the atlas.
        opens_page: whether to open the page in a browser.
        shows_plan: whether to print the plan.

    Attributes:
        methods: names of the planned methods.
    """

    def __init__(self, out: Path, opens_page: bool = False, shows_plan: bool = True) -> None:
        super().__init__()
        self.out = out
        self.opens_page = opens_page
        self.shows_plan = shows_plan
        self.methods: list[str] = []

    def on_plan(self, plan: Any) -> None:
        from headatlas.runs import tables

        self.methods = list(plan.plans)
        if self.shows_plan:
            print_table(f"Plan for {plan.title}", tables.plan_rows(plan.plans, self.out))

    def on_page_drawn(self, page: Path) -> None:
        super().on_page_drawn(page)
        self.open(page)

    def open(self, page: Path) -> None:
        """Open the page in a browser, at most once, if the user wants that."""
        if self.opens_page:
            self.opens_page = False
            if not webbrowser.open(page.absolute().as_uri()):
                typer.echo(f"no browser could be started: open {page} yourself", err=True)
