"""Providers of external GPUs behind one small protocol.

A provider implements its communication basics and nothing else: identity, reconciliation, garbage collection and
translation to Kubernetes live in the bridge. This package must not know Kubernetes or NATS.
"""
