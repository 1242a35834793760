"""decider"""
