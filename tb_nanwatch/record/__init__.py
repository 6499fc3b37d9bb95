"""Inside the training process: what is measured, how, and how it reaches the disk.

The writing half (blocks, segments, writer) needs no TensorFlow; everything else here may import it, and nothing
outside this folder does.
"""
