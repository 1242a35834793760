"""Decides for every virtual node whether work may overflow, and keeps its switch taint so.

Promises: every decision is on the record before its effect; unknown never moves a gate; a restart decides from the
same past. Refuses: to touch any other taint, or to act without the record.
"""
