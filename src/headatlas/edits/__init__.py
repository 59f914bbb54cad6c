"""Change heads permanently: fold edits into weights, in memory or as a checkpoint with a model card."""
