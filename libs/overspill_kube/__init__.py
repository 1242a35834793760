"""Everything that speaks to a Kubernetes API server: reads, watches, and effects that cannot hit the wrong object.

The only package that imports kubernetes-asyncio, and only for credentials and TLS. It knows how to carry out an effect,
never whether it should be. Expected refusals are values (`outcomes`), the unexpected are exceptions (`errors`).
"""
