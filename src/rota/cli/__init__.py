"""Command line: the parser, rendering, and the verbs that need no scheduler. Each package has its own verbs."""
