"""What a user writes, as a model that was trained to chat is given it."""

from headatlas.errors import CannotDo, one_line
from headatlas.models.lm import LM


def chats(lm: LM, template: bool = True) -> bool:
    """Whether to ask in the tokenizer's chat template: it has one, and it is wanted."""
    return template and bool(getattr(lm.tokenizer, "chat_template", None))


def chat_text(lm: LM, words: str) -> str:
    """A user's words in the chat template, up to where the answer begins."""
    try:
        messages = [{"role": "user", "content": words}]
        return str(lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception as e:  # templates are programs of the model's makers: they raise what they like
        raise CannotDo(
            f"the chat template of model {lm.name!r} fails: {one_line(e)}"
            " (template=False, --no-template: go without it)"
        ) from e
