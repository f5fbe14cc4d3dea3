"""What a collection reads: its options, packed texts, features, loaded models."""
