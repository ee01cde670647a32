"""Results of a step on their way to the host, which reads them when later steps have been launched."""

from typing import Any

import torch
from torch import Tensor


class Readback:
    """Small integers on their way from the device to the host.

    The copy is put on the stream behind the step that made the values, so that reading waits for that step only, not
    for what was launched since.

    Args:
        values: any shape, not written afterwards.
    """

    def __init__(self, values: Tensor) -> None:
        self._host, self._event = values, None
        if not values.is_cpu:
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._event = torch.get_device_module(values.device).Event()
            self._event.record()

    def read(self) -> Any:
        """The values as nested lists."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.tolist()
