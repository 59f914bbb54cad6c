"""Put prompts into the chat template of models that were trained to chat."""

from headatlas.errors import CannotDo, one_line
from headatlas.models.lm import LM


def chats(lm: LM, template: bool = True) -> bool:
    """Return whether to use the tokenizer's chat template: it has one, and `template` is on."""
    return template and bool(getattr(lm.tokenizer, "chat_template", None))


def chat_text(lm: LM, words: str) -> str:
    """Put a user's words into the chat template, up to where the answer begins."""
    try:
        messages = [{"role": "user", "content": words}]
        return str(lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception as e:  # templates are programs that come with the model and may raise anything
        raise CannotDo(
            f"the chat template of model {lm.name!r} fails: {one_line(e)}"
            " (template=False, --no-template: do not use it)"
        ) from e
