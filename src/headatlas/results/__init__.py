"""Labelled results: their storage, and what tables, figures and the page read from them."""
