"""Chat completions: the form in which exchanges come, with the changes that a model's quirks need."""
