"""A small byte-level BPE tokenizer, trained on the stories."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

END = "<|endoftext|>"


def train_tokenizer(texts: Iterable[str], folder: Path, *, vocabulary: int = 2048) -> Any:
    """Train a tokenizer and save it for ``AutoTokenizer.from_pretrained``.

    Args:
        texts: Texts from which to learn merges.
        folder: Where to save it.
        vocabulary: Largest number of tokens, including 256 bytes and the end-of-text token.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    made.save_pretrained(folder)
    return made
