"""What the commands that compute show on the terminal."""

import webbrowser
from pathlib import Path
from typing import Any

import typer

from headatlas.cli.app import print_table
from headatlas.terminal import RunDisplay


class Display(RunDisplay):
    """Also shows the plan, and opens the page if `opens`.

    Attributes:
        methods: those that are planned.
    """

    def __init__(self, out: Path, opens: bool = False, shows_plan: bool = True) -> None:
        super().__init__()
        self.out, self.opens, self.shows_plan = out, opens, shows_plan
        self.methods: list[str] = []

    def on_plan(self, plan: Any) -> None:
        from headatlas.runs import tables

        self.methods = list(plan.plans)
        if self.shows_plan:
            print_table(f"Plan for {plan.title}", tables.plan(plan.plans, self.out))

    def on_page_drawn(self, page: Path) -> None:
        super().on_page_drawn(page)
        self.open(page)

    def open(self, page: Path) -> None:
        """Open the page in a browser, once, if that was asked for."""
        if self.opens:
            self.opens = False
            if not webbrowser.open(page.absolute().as_uri()):
                typer.echo(f"no browser could be started: open {page} yourself", err=True)
