"""Where runs happen: `port` says what an executor is, `local` is the one on this machine."""
