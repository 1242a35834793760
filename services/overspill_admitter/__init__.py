"""The admitter holds queue-labelled Jobs and pods until their queue has quota and, at home, there is room.

It promises: what is admitted never exceeds a queue's quota, whatever the order of events; nothing is admitted on what
it does not know; a returned pod's successor keeps its quota. It refuses to stop what runs.
"""
