"""What `[display]` says, for commands: reading the file themselves would take them longer than asking."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer


async def get_display(request: Request) -> Response:
    control = context_of(request).control
    control.look_at_config()  # what was just written holds for what is shown after it
    return answer(control.config.display)


ROUTES = [Route("/api/display", get_display, methods=["GET"])]
