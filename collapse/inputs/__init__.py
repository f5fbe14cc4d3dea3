"""What a collection reads: its options, texts, tokens, model references, language models."""
