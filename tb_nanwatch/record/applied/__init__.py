"""Remedies put into a live training, on behalf of `nanwatch try`: one a file.

remedy     what a remedy can take hold of in a loop; it does nothing by itself
trial      the run that tries one: where it is written, how it ends, what it tells
pure       which tensors of a TensorFlow 1 graph can be read before a step without changing it
"""
