"""What changes things: one file per verb, each a function of the transaction it runs in."""
