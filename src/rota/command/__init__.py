"""Operations that change state: one file per verb, each a function of the transaction it runs in."""
