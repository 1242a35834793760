"""What every process needs that is neither NATS nor Kubernetes: settings, lifecycle, clock, logs, health, metrics."""
