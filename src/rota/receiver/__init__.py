"""Those who are told: HTTP to wherever somebody listens."""
