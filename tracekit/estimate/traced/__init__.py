"""The traced estimate: a training step run on the meta device, its storages put through the exact allocator.

`script` finds the user's build, `tracer` runs it (the one file with torch), `kernel` and `reduction` know what a GPU's
kernels take besides their outputs, `cards` the GPUs, `tape` what was seen, `answer` what comes out. Nothing is printed.
"""
