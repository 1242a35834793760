"""What all services do alike: connect to the bus and the API server, lead, say so on the record, and stop.

Above the bus and the client, below every service. It knows no domain: a service brings settings and a body.
"""

from overspill_service.context import Context
from overspill_service.metrics import metrics_of
from overspill_service.serving import main, serve

__all__ = ["Context", "main", "metrics_of", "serve"]
