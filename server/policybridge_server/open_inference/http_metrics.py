"""`/metrics`: the server's metrics, for Prometheus."""

from aiohttp import hdrs, web

from policybridge_server.budget import PEER
from policybridge_server.telemetry.metrics import Metrics
from policybridge_server.transports.contract import Host


def metrics_routes(host: Host) -> list[web.RouteDef]:
    """Give the path; it needs the scope `Scope.READ` if there are tokens."""
    metrics = Metrics(host)

    async def answer(request: web.Request) -> web.Response:
        text, kind = await metrics.page(request.headers.get(hdrs.ACCEPT, ""), request[PEER].work)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: kind})

    return [web.get("/metrics", answer)]
