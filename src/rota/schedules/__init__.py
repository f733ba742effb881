"""Schedules: cron expressions, the jobs that they submit, and the timer that fires them."""
