"""Rules: a plan in, diagnostics out. Pure."""
