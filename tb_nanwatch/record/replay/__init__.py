"""Rewind and replay: the failing step once more, op by op, from the last state that was kept.

state      what a step can change, and how it is kept and put back
memory     the shadow and the steps since
observe    an eager step with every op looked at
origin     from what was observed to the op that made the first bad value
source     from a stack to the user's line
compiled   ops that fail under XLA only
rerun      all of it, in order
"""
