"""Control of the scheduler: status, pools, pause, resume, clear, tick, breakers, health, metrics and shutdown."""
