"""Kubernetes objects as Overspill reads them: frozen views with only the fields that somebody needs.

Views are for reading. What is written to a cluster is a patch built by whoever owns the effect, never a view sent back:
fields that a view does not know would be lost. The package must not know how objects travel.
"""
