"""The live page: a prompt of one's own, every head's attention and output, heads switched, and random heads beside."""
