"""Where independent items of work run: this process, processes of this machine, or a Ray cluster: `pool.Pool`."""
