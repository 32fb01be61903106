"""What the fork server imports, so that each worker has it from the start.

The garbage collector waits meanwhile, and later passes over the hundred thousand objects that torch has made.
"""

import atexit
import gc
import os

gc.disable()
import torch._dynamo  # noqa: E402
import torch.distributed  # noqa: E402, F401

import labkit.comm.torch_comm  # noqa: E402
import labkit.comm.worker  # noqa: E402, F401

gc.freeze()
gc.enable()
# At its end there is nothing to do: to take torch's modules apart would take a fifth of a second.
atexit.register(os._exit, 0)
