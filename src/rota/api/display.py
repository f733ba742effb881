"""Display settings over HTTP. A request is faster for a command than reading the configuration itself."""

from __future__ import annotations

from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.config.section import DisplayConfig


async def get_display(call: Invocation[NoQuery, None]) -> JsonReply[DisplayConfig]:
    """Show how commands display jobs: `[display]` of the configuration."""
    control = call.context.control
    control.check_config()  # a change of the file applies to the next command
    return JsonReply(control.config.display)


ENDPOINTS = [Endpoint("GET", "/api/display", get_display, response_example=DisplayConfig())]
