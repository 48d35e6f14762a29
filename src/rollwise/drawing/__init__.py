"""Responses drawn without training: what `rollwise evaluate` and `rollwise prepare` do."""
