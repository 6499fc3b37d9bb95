"""Watching the graphs of TensorFlow 1, which a session runs.

walk       what a run executes, and which ops train
names      variables by scope, their gradients, and what the layers put out
gauges     the ops that are added to the graph
probe      what the host reads after a run
memory     feeds and variables of the newest steps
recorder   a run of the session as a step
session    the entry points
"""
