"""What the fork server imports, so that each worker has it from the start.

The garbage collector waits: among the hundred thousand objects that torch makes it would find nothing, time and again.
"""

import gc

gc.disable()
import torch._dynamo  # noqa: E402
import torch.distributed  # noqa: E402, F401

import labkit.comm.torch_comm  # noqa: E402
import labkit.comm.worker  # noqa: E402, F401

gc.enable()
