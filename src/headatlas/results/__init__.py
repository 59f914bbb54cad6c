"""Labelled results, their storage and provenance."""
