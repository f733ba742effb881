"""What `[display]` says, for commands: reading the file themselves would take them longer than asking."""

from __future__ import annotations

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.config.section import Display


async def get_display(call: Call[Nothing, None]) -> Reply[Display]:
    """Say how commands are to show jobs. That is `[display]` of the configuration."""
    control = call.context.control
    control.look_at_config()  # what was just written holds for what is shown after it
    return Reply(control.config.display)


ENDPOINTS = [Endpoint("GET", "/api/display", get_display, shows=Display())]
