"""Which names hold secrets, so that nothing that is printed shows their values."""

from __future__ import annotations

import re
from functools import lru_cache

from precision_plan.facts.env_vars import is_secret as is_secret_variable

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = frozenset({"SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"})
# Arguments are also named for what they key and for special tokens: --input-key, --eos-token.
_KEYS = frozenset({"ACCESS", "API", "AUTH", "ENCRYPTION", "PRIVATE", "WANDB"})
_TOKENS = frozenset({"BOS", "CLS", "EOD", "EOS", "MASK", "PAD", "SEP", "STOP", "UNK"})


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """True if a variable, flag or key of this name holds a secret.

    Upper case is an environment variable (:func:`facts.env_vars.is_secret`). For arguments the
    words of the name decide: ``--wandb-key`` and ``api_token`` do, ``--input-key``,
    ``--max-tokens`` and ``--eos-token`` do not.
    """
    if name.isupper():
        return is_secret_variable(name)
    words = [word.upper() for word in _WORD.findall(name)]
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    if words[-1] == "KEY":
        return before in _KEYS
    if words[-1] == "TOKEN":
        return before not in _TOKENS
    return not _ALWAYS.isdisjoint(words)
