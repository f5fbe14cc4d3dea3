"""Find models, texts and stores by name, in local folders or on the Hugging Face Hub; push and pull stores."""
