"""The traced estimate: a training step run on the meta device, its storages put through the exact allocator.

`script` finds the user's build, `tracer` runs it. Beside it, `door` is the one import of torch; `routes`, `recurrent`,
`autocast` and `stand_in` have it choose as on a GPU, `cuda` answers what a script asks of one, and `values` keeps what
small tensors hold. `kernel`, `indexing` and `reduction` know what a GPU's kernels take besides their outputs, `cards`
the GPUs; `tape` is what was seen, `answer` what comes out.
"""
