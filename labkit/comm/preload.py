"""What the fork server imports, so that each worker has it from the start.

The garbage collector waits meanwhile, and never looks at the hundred thousand objects that torch has made.
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
# The server has nothing to do at its end; Python would take a fifth of a second to take torch's modules apart.
atexit.register(os._exit, 0)
