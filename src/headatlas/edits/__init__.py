"""Heads changed for good: folded into weights, in memory or as a checkpoint, with a card that says what it did."""
