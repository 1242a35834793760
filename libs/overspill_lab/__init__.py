"""The lab: a small Kubernetes in Python, a fake GPU cloud and everything around them, each a process of its own.

It exists so that a newcomer, and every test, has a cluster within seconds and without privileges. Every part but the
API server is a plain client of the API and would serve a real one too; where the lab differs from Kubernetes, the lab
is wrong, and what it does not do it refuses.
"""
