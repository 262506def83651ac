"""One call of a model: the request in the style that the upstream takes, its answer as chunks, its refusals."""
