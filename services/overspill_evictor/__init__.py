"""evictor"""
