"""What all services do alike: connect to the bus and the API server, lead, say so on the record, and stop.

Above the bus and the client, below every service. It knows no domain: a service brings settings and a body.
"""

from overspill_service.context import BusContext, Context
from overspill_service.metrics import metrics_of
from overspill_service.serving import main, main_on_bus, serve, serve_on_bus

__all__ = ["BusContext", "Context", "main", "main_on_bus", "metrics_of", "serve", "serve_on_bus"]
