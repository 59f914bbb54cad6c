"""Find, read, gate and patch the heads of a model.

families: where each architecture keeps its heads, and which layers have some; add a family here
loading, gguf, offloaded, checkpoint_reader, default_model, cache, catalogue: from a name or file to an `LM`
lm: the model with its heads in reach; weights: every head's own matrices
hooks: the hook on the output projection, gates and patches
tokens, packing, log_probs: prompts as tokens, packed; log P(target) under many gates
interventions, patching, single_heads: what the model answers while heads are changed
attention, streaming_attention, attention_interface: where heads look
logit_attribution: what heads add to the logits directly
generation: answers to many prompts
gradients, memory, cost, library_settings: how a model is run
"""
