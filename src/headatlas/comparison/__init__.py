"""Do maps agree? Of two methods, atlases, models or authors; or over the seeds and halves of one map."""
